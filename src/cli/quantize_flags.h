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
  std::vector<std::string> rules;
  std::string method = "kquant";
  ImportanceFlags importance;
  bool requantize = false;
  bool no_quality = false;
  bool force = false;
  int chunks = 32;
};

}  // namespace nibble::cli
