#pragma once

#include <cstddef>
#include <filesystem>

namespace nibble {

// What the control groups of this process allow: the tightest limit on the way from its own group
// to the root, for version 1 and 2 hierarchies alike.
struct CgroupLimits {
  double cpus = 0;              // processors' worth of time; 0: no limit
  size_t memory = 0;            // bytes; 0: no limit
  size_t memory_available = 0;  // limit less what cannot be reclaimed, valid when memory != 0
};

// root stands before /proc/self/cgroup, /proc/self/mountinfo and the mount points found there.
CgroupLimits ReadCgroupLimits(const std::filesystem::path& root = "/");

}  // namespace nibble
