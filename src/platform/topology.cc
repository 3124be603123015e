#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>

#include "platform/cgroup.h"
#include "platform/cpu.h"

namespace nibble {
namespace {

std::string ReadLine(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

// The processors this process may run on. A machine with more than 1,024 needs a larger mask.
struct Affinity {
  int count = 1;
  int first = 0;
};
Affinity ReadAffinity() {
  for (int capacity = 1024; capacity <= 1 << 20; capacity *= 4) {
    cpu_set_t* set = CPU_ALLOC(capacity);
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(capacity);
    CPU_ZERO_S(bytes, set);
    if (sched_getaffinity(0, bytes, set) == 0) {
      Affinity found;
      found.count = std::max(1, CPU_COUNT_S(bytes, set));
      while (found.first < capacity && !CPU_ISSET_S(found.first, bytes, set)) ++found.first;
      CPU_FREE(set);
      return found;
    }
    CPU_FREE(set);
  }
  return {};
}

// "32K", "2048K", "32M" as sysfs writes them.
size_t ParseSize(const std::string& text) {
  char* end = nullptr;
  size_t size = std::strtoull(text.c_str(), &end, 10);
  if (*end == 'K') size <<= 10;
  if (*end == 'M') size <<= 20;
  return size;
}

size_t LastLevelCache(int cpu) {
  size_t largest = 0;
  int deepest = 0;
  for (int index = 0; index < 16; ++index) {
    const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                               "/cache/index" + std::to_string(index) + "/";
    const int level = std::atoi(ReadLine(folder + "level").c_str());
    if (level == 0) break;
    if (level < deepest || ReadLine(folder + "type") == "Instruction") continue;
    deepest = level;
    largest = ParseSize(ReadLine(folder + "size"));
  }
  if (largest > 0) return largest;
  for (int name : {_SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE}) {
    if (const long size = sysconf(name); size > 0) return static_cast<size_t>(size);
  }
  constexpr size_t kGuess = size_t{8} << 20;
  return kGuess;
}

// Members of a list like "0-1,4".
int CountOfList(const std::string& list) {
  int count = 0;
  const char* p = list.c_str();
  while (*p >= '0' && *p <= '9') {
    char* end = nullptr;
    const long first = std::strtol(p, &end, 10);
    long last = first;
    if (*end == '-') last = std::strtol(end + 1, &end, 10);
    count += static_cast<int>(std::max(0L, last - first + 1));
    p = *end == ',' ? end + 1 : end;
  }
  return count;
}

struct Memory {
  size_t total = 0;
  size_t available = 0;
};
Memory ReadMachineMemory() {
  Memory memory;
  std::ifstream in("/proc/meminfo");
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

CpuTopology ReadTopology() {
  CpuTopology topology;
  const Affinity affinity = ReadAffinity();
  const CgroupLimits limits = ReadCgroupLimits();
  topology.affinity_threads = affinity.count;
  topology.cgroup_quota = limits.cpus;
  topology.threads = affinity.count;
  if (limits.cpus > 0) {
    // Rounded down: a thread that is throttled in the middle of a region stalls all others.
    const int granted = std::max(1, static_cast<int>(std::floor(limits.cpus + 0.01)));
    topology.threads = std::min(topology.threads, granted);
  }
  topology.last_level_cache = LastLevelCache(affinity.first);
  const Memory memory = ReadMachineMemory();
  topology.memory_total = memory.total;
  topology.memory_available = memory.available;
  if (limits.memory != 0) {
    topology.memory_total = std::min(memory.total, limits.memory);
    topology.memory_available = std::min(memory.available, limits.memory_available);
  }
  topology.numa_nodes = std::max(1, CountOfList(ReadLine("/sys/devices/system/node/has_memory")));
  return topology;
}

}  // namespace nibble
