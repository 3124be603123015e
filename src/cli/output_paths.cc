#include "cli/output_paths.h"

#include <system_error>

#include "container/output_file.h"

namespace nibble::cli {
namespace {

namespace fs = std::filesystem;

// Also of files that are not there yet.
bool SamePlace(const fs::path& a, const fs::path& b) {
  if (a.empty() || b.empty()) return false;
  std::error_code error;
  if (fs::equivalent(a, b, error)) return true;
  const fs::path one = fs::weakly_canonical(a, error);
  return !error && one == fs::weakly_canonical(b, error) && !error;
}

}  // namespace

Status CheckOutputPaths(std::span<const NamedPath> outputs, std::span<const NamedPath> inputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const NamedPath& output = outputs[i];
    if (output.path.empty()) continue;
    for (const NamedPath& input : inputs) {
      if (!SamePlace(output.path, input.path)) continue;
      return BadInput("{}: '{}' is also {} and would be replaced", output.flag,
                      output.path.string(), input.flag);
    }
    for (const NamedPath& other : outputs.first(i)) {
      if (!SamePlace(output.path, other.path)) continue;
      return BadInput("{}: '{}' is also {}", output.flag, output.path.string(), other.flag);
    }
    std::error_code error;
    if (fs::is_directory(output.path, error) && output.flag == "OUT") continue;  // a layout's
    const auto place = OutputPlace(output.path);
    if (!place) return Within(std::string(output.flag), place.error());
  }
  return {};
}

}  // namespace nibble::cli
