#include "platform/sysfs.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>

namespace nibble {
namespace {

namespace fs = std::filesystem;

// "32K", "2048K", "32M" as sysfs writes them.
size_t ParseSize(const std::string& text) {
  char* end = nullptr;
  size_t size = std::strtoull(text.c_str(), &end, 10);
  if (*end == 'K') size <<= 10;
  if (*end == 'M') size <<= 20;
  return size;
}

struct Cache {
  int level = 0;
  size_t bytes = 0;
  std::string shared;  // list of the processors that share it
};

Cache LastLevelCacheOf(const fs::path& root, int cpu) {
  Cache last;
  const fs::path folder = root / "sys/devices/system/cpu" / ("cpu" + std::to_string(cpu)) / "cache";
  for (int index = 0; index < 16; ++index) {
    const fs::path cache = folder / ("index" + std::to_string(index));
    const int level = std::atoi(ReadFirstLine(cache / "level").c_str());
    if (level == 0) break;
    if (level < last.level || ReadFirstLine(cache / "type") == "Instruction") continue;
    last = {level, ParseSize(ReadFirstLine(cache / "size")),
            ReadFirstLine(cache / "shared_cpu_list")};
  }
  if (last.shared.empty()) last.shared = std::to_string(cpu);
  return last;
}

}  // namespace

std::string ReadFirstLine(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::vector<int> ParseCpuList(const std::string& list) {
  constexpr long kMost = 1 << 20;
  std::vector<int> cpus;
  const char* p = list.c_str();
  while (*p >= '0' && *p <= '9') {
    char* end = nullptr;
    const long first = std::strtol(p, &end, 10);
    long last = first;
    if (*end == '-') last = std::strtol(end + 1, &end, 10);
    if (first > kMost || last > kMost) break;
    for (long cpu = first; cpu <= last; ++cpu) cpus.push_back(static_cast<int>(cpu));
    p = *end == ',' ? end + 1 : end;
  }
  return cpus;
}

std::vector<int> AllowedCpus() {
  // A machine with more than 1,024 needs a larger mask.
  for (int capacity = 1024; capacity <= 1 << 20; capacity *= 4) {
    cpu_set_t* set = CPU_ALLOC(capacity);
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(capacity);
    CPU_ZERO_S(bytes, set);
    std::vector<int> cpus;
    if (sched_getaffinity(0, bytes, set) == 0) {
      for (int cpu = 0; cpu < capacity; ++cpu) {
        if (CPU_ISSET_S(cpu, bytes, set)) cpus.push_back(cpu);
      }
    }
    CPU_FREE(set);
    if (!cpus.empty()) return cpus;
  }
  return {0};
}

LastLevelCaches ReadLastLevelCaches(const fs::path& root, std::span<const int> cpus) {
  LastLevelCaches caches;
  std::set<std::string> counted;
  for (const int cpu : cpus) {
    const Cache cache = LastLevelCacheOf(root, cpu);
    caches.largest = std::max(caches.largest, cache.bytes);
    if (counted.insert(cache.shared).second) caches.all += cache.bytes;
  }
  return caches;
}

}  // namespace nibble
