#pragma once

#include <string>
#include <vector>

#include "cli/importance.h"

namespace nibble::cli {

struct QuantizeFlags {
  std::string in;
  std::string out;
  std::string to;
  std::string text;
  std::string report;
  std::string budget;        // in place of `to`
  int budget_sequences = 2;  // of 128 tokens, for the sensitivity pass
  std::vector<std::string> rules;
  std::string method;  // empty: kquant for GGUF files, rtn for folders
  ImportanceFlags importance;
  bool requantize = false;
  bool no_quality = false;
  bool force = false;
  int chunks = 32;
  // Of methods (quantize/recipe.h).
  bool act_order = false;
  bool static_groups = false;
  bool mse = false;
  bool clip = false;
  bool rotate = false;
  double damp = 0.01;
  double alpha = 0.5;
  double threshold = 6;
  // Of grids in folders.
  std::string granularity;  // empty: the layout's
  int group = 0;            // 0: the layout's
  bool sym = false;
  bool asym = false;
  std::string calib_memory = "1GB";
};

}  // namespace nibble::cli
