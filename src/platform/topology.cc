#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

#include "platform/cgroup.h"
#include "platform/cpu.h"
#include "platform/numa.h"
#include "platform/sysfs.h"

namespace nibble {
namespace {

// Where sysfs does not tell (some containers and virtual machines).
size_t GuessLastLevelCache() {
  for (int name : {_SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE}) {
    if (const long size = sysconf(name); size > 0) return static_cast<size_t>(size);
  }
  constexpr size_t kGuess = size_t{8} << 20;
  return kGuess;
}

struct Memory {
  size_t total = 0;
  size_t available = 0;
};
Memory ReadMachineMemory(const std::filesystem::path& root) {
  Memory memory;
  std::ifstream in(root / "proc/meminfo");
  std::string key;
  std::string unit;
  size_t kib = 0;
  while (in >> key >> kib && std::getline(in, unit)) {
    if (key == "MemTotal:") memory.total = kib << 10;
    if (key == "MemAvailable:") memory.available = kib << 10;
  }
  return memory;
}

}  // namespace

CpuTopology ReadTopology(const std::filesystem::path& root) {
  CpuTopology topology;
  const std::vector<int> cpus = AllowedCpus();
  const CgroupLimits limits = ReadCgroupLimits(root);
  topology.affinity_threads = static_cast<int>(cpus.size());
  topology.cgroup_quota = limits.cpus;
  topology.threads = topology.affinity_threads;
  if (limits.cpus > 0) {
    // Rounded down: a thread that is throttled in the middle of a region stalls all others.
    const int granted = std::max(1, static_cast<int>(std::floor(limits.cpus + 0.01)));
    topology.threads = std::min(topology.threads, granted);
  }
  const LastLevelCaches caches = ReadLastLevelCaches(root, cpus);
  topology.last_level_cache = caches.largest > 0 ? caches.largest : GuessLastLevelCache();
  topology.all_last_level_caches = std::max(caches.all, topology.last_level_cache);
  const Memory memory = ReadMachineMemory(root);
  topology.memory_total = memory.total;
  topology.memory_available = memory.available;
  if (limits.memory != 0) {
    topology.memory_total = std::min(memory.total, limits.memory);
    topology.memory_available = std::min(memory.available, limits.memory_available);
  }
  topology.numa_nodes = std::max(1, static_cast<int>(ReadNumaNodes(root).size()));
  return topology;
}

}  // namespace nibble
