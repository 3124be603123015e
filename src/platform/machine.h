#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace nibble {

// What makes a machine another one for measurements: figures that were measured on one do not hold
// on the other.
struct Machine {
  std::string processor;        // "AMD EPYC, family 25, model 17, stepping 1"
  int processors = 1;           // that this process may use
  size_t last_level_cache = 0;  // bytes of the largest

  bool operator==(const Machine&) const = default;
  std::string Describe() const;  // "AMD EPYC, …; 2 processors; 32 MiB of last-level cache"
};

// root stands before the names of files under /sys and /proc.
Machine ReadMachine(const std::filesystem::path& root = "/");

}  // namespace nibble
