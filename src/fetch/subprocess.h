#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace nibble {

struct ProcessResult {
  int exit_code = 0;   // 127: the program was not found
  std::string output;  // the last 4 KB of standard output and error
};

// Runs a program (found along PATH) with these arguments, no shell between. `keep_running` is asked
// ten times a second; false ends the program and gives kCancelled.
Result<ProcessResult> RunProgram(const std::vector<std::string>& arguments,
                                 const std::function<bool()>& keep_running);

}  // namespace nibble
