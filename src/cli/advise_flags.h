#pragma once

#include <string>
#include <vector>

namespace nibble::cli {

// The flags of `nibble advise`, as typed.
struct AdviseFlags {
  std::string model;
  std::string text;  // empty: the built-in one
  int concurrency = 1;
  int context = 0;  // 0: 2048, or the model's own where that is less
  std::string memory;
  double max_quality_loss = 0.1;
  std::string objective = "speed";
  std::string report;
  std::string write;
  double budget_s = 300;
  std::string device = "here";
  int devices = 1;
  std::string emit;     // empty: by the device
  std::string weights;  // empty: those that are smaller than the model
  double kv_target = 0;
  bool kv_given = false;
};

}  // namespace nibble::cli
