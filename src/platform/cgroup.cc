#include "platform/cgroup.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "platform/sysfs.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

struct Mount {
  std::string root;   // the part of the hierarchy that is mounted
  std::string point;  // where
  std::string type;   // "cgroup" or "cgroup2"
  std::string options;
};

std::optional<int64_t> ToInt(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

std::optional<int64_t> IntOf(const fs::path& file) { return ToInt(ReadFirstLine(file)); }

std::vector<Mount> ReadMounts(const fs::path& root) {
  std::vector<Mount> mounts;
  std::ifstream in(root / "proc/self/mountinfo");
  for (std::string line; std::getline(in, line);) {
    // "36 35 98:0 /root /point options [optional]... - type source super_options"
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream left(line.substr(0, dash));
    std::istringstream right(line.substr(dash + 3));
    std::string skip;
    Mount mount;
    left >> skip >> skip >> skip >> mount.root >> mount.point;
    right >> mount.type >> skip >> mount.options;
    if (mount.type == "cgroup" || mount.type == "cgroup2") mounts.push_back(std::move(mount));
  }
  return mounts;
}

bool ListHas(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    if (list.substr(0, comma) == word) return true;
    if (comma == std::string_view::npos) break;
    list.remove_prefix(comma + 1);
  }
  return false;
}

// The group's folder and all its parents up to the mount point, innermost first. A group outside
// the mounted part (a container that sees the host's paths) counts as the mount point itself.
std::vector<fs::path> FoldersUpward(const fs::path& root, const Mount& mount, std::string group) {
  if (mount.root != "/") {
    const bool below = group.starts_with(mount.root) &&
                       (group.size() == mount.root.size() || group[mount.root.size()] == '/');
    group = below ? group.substr(mount.root.size()) : "";
  }
  if (group.find("..") != std::string::npos) group.clear();
  const fs::path top = root / fs::path(mount.point).relative_path();
  std::vector<fs::path> folders;
  std::error_code ignored;
  for (fs::path rest = fs::path(group).relative_path(); !rest.empty(); rest = rest.parent_path()) {
    if (rest.has_filename() && fs::exists(top / rest, ignored)) folders.push_back(top / rest);
  }
  folders.push_back(top);
  return folders;
}

void LimitCpus(CgroupLimits& limits, int64_t quota, int64_t period) {
  if (quota <= 0 || period <= 0) return;
  const double cpus = static_cast<double>(quota) / static_cast<double>(period);
  limits.cpus = limits.cpus == 0 ? cpus : std::min(limits.cpus, cpus);
}

// File cache can be dropped, so it counts as free.
int64_t ReclaimableOf(const fs::path& stat, std::string_view prefix) {
  std::ifstream in(stat);
  std::string key;
  int64_t value = 0;
  int64_t sum = 0;
  while (in >> key >> value) {
    const std::string_view name = key;
    if (!name.starts_with(prefix)) continue;
    const std::string_view rest = name.substr(prefix.size());
    if (rest == "inactive_file" || rest == "active_file") sum += value;
  }
  return sum;
}

void LimitMemory(CgroupLimits& limits, int64_t limit, int64_t used, int64_t reclaimable) {
  // Version 1 writes "no limit" as the largest page multiple.
  constexpr int64_t kNoLimit = int64_t{1} << 60;
  if (limit <= 0 || limit >= kNoLimit) return;
  const int64_t held = std::max<int64_t>(0, used - reclaimable);
  const auto free = static_cast<size_t>(std::max<int64_t>(0, limit - held));
  const auto size = static_cast<size_t>(limit);
  limits.memory_available = limits.memory == 0 ? free : std::min(limits.memory_available, free);
  limits.memory = limits.memory == 0 ? size : std::min(limits.memory, size);
}

void ApplyV2(const fs::path& folder, CgroupLimits& limits) {
  std::istringstream cpu(ReadFirstLine(folder / "cpu.max"));
  std::string quota;
  int64_t period = 0;
  if (cpu >> quota >> period) LimitCpus(limits, ToInt(quota).value_or(0), period);
  if (const auto limit = IntOf(folder / "memory.max")) {
    LimitMemory(limits, *limit, IntOf(folder / "memory.current").value_or(0),
                ReclaimableOf(folder / "memory.stat", ""));
  }
}

void ApplyV1(const fs::path& folder, CgroupLimits& limits) {
  LimitCpus(limits, IntOf(folder / "cpu.cfs_quota_us").value_or(0),
            IntOf(folder / "cpu.cfs_period_us").value_or(0));
  if (const auto limit = IntOf(folder / "memory.limit_in_bytes")) {
    LimitMemory(limits, *limit, IntOf(folder / "memory.usage_in_bytes").value_or(0),
                ReclaimableOf(folder / "memory.stat", "total_"));
  }
}

}  // namespace

CgroupLimits ReadCgroupLimits(const fs::path& root) {
  CgroupLimits limits;
  const std::vector<Mount> mounts = ReadMounts(root);
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    // "hierarchy:controllers:path"; version 2 is hierarchy 0 without controllers.
    const size_t first = line.find(':');
    if (first == std::string::npos) continue;
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    const bool v2 = controllers.empty();
    if (!v2 && !ListHas(controllers, "cpu") && !ListHas(controllers, "memory")) continue;
    for (const Mount& mount : mounts) {
      if (v2 != (mount.type == "cgroup2")) continue;
      if (!v2 && !ListHas(mount.options, controllers.substr(0, controllers.find(',')))) continue;
      for (const fs::path& folder : FoldersUpward(root, mount, group)) {
        v2 ? ApplyV2(folder, limits) : ApplyV1(folder, limits);
      }
    }
  }
  return limits;
}

}  // namespace nibble
