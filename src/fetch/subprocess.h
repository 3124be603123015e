#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace nibble {

struct ProcessResult {
  int exit_code = 0;   // 127: the program was not found
  std::string output;  // the last 4 KB of standard output and error
};

struct ProcessOptions {
  std::filesystem::path folder;                // it runs in; empty: this process's own
  std::function<bool()> keep_running;          // asked ten times a second; false: kCancelled
  std::chrono::milliseconds time_limit{0};     // 0: none; past it: kIo
  std::chrono::milliseconds term_grace{2000};  // between asking it to end and killing it
};

// Runs a program (found along PATH) with these arguments, no shell between. One that is stopped has
// ended when this returns.
Result<ProcessResult> RunProgram(const std::vector<std::string>& arguments,
                                 const ProcessOptions& options);

}  // namespace nibble
