#pragma once

#include <filesystem>
#include <span>
#include <string_view>

#include "base/result.h"

namespace nibble::cli {

// A file that a command reads or writes, by the flag that names it. An empty path: not given.
struct NamedPath {
  std::string_view flag;
  std::filesystem::path path;
};

// Before the work starts, not behind it: every output can be made where it is to be, and is neither
// an input, which it would replace, nor another output.
Status CheckOutputPaths(std::span<const NamedPath> outputs, std::span<const NamedPath> inputs);

}  // namespace nibble::cli
