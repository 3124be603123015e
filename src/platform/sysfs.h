#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace nibble {

// Reading what Linux says of the machine under /sys and /proc. `root` stands before those names.

// The first line of a file; empty when there is none.
std::string ReadFirstLine(const std::filesystem::path& file);

// Members of a list like "0-1,4", ascending as written; stops at what is no list.
std::vector<int> ParseCpuList(const std::string& list);

// Processors that this process may run on, ascending; at least one.
std::vector<int> AllowedCpus();

struct LastLevelCaches {
  size_t largest = 0;  // bytes of one; 0: not told
  size_t all = 0;      // of all that the processors reach, each counted once
};
LastLevelCaches ReadLastLevelCaches(const std::filesystem::path& root, std::span<const int> cpus);

}  // namespace nibble
