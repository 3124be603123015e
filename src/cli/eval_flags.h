#pragma once

#include <string>

#include "base/result.h"
#include "cli/globals.h"
#include "cli/json_output.h"

namespace nibble::cli {

// The flags of `nibble eval`, as typed.
struct EvalFlags {
  std::string model;
  std::string text;
  std::string protocol = "llama";
  std::string ids_file;
  std::string logits;
  std::string base;
  std::string task;
  std::string data;
  std::string task_file;
  std::string answers;
  int chunks = 0;
  int items = 0;
};

// Adds how the model computes: act, kv, kv_skip_layers, kv_rotate.
Status AddArithmetic(const GlobalFlags& flags, Json& out);

}  // namespace nibble::cli
