#include "platform/numa.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/math.h"
#include "platform/sysfs.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBitsPerWord = sizeof(unsigned long) * CHAR_BIT;

}  // namespace

std::vector<NumaNode> ReadNumaNodes(const fs::path& root) {
  return ReadNumaNodes(root, AllowedCpus());
}

std::vector<NumaNode> ReadNumaNodes(const fs::path& root, std::span<const int> cpus) {
  std::vector<NumaNode> nodes;
  const fs::path folder = root / "sys/devices/system/node";
  for (const int id : ParseCpuList(ReadFirstLine(folder / "has_memory"))) {
    NumaNode node{.id = id, .cpus = {}};
    const fs::path list = folder / ("node" + std::to_string(id)) / "cpulist";
    for (const int cpu : ParseCpuList(ReadFirstLine(list))) {
      if (std::ranges::find(cpus, cpu) != cpus.end()) node.cpus.push_back(cpu);
    }
    if (!node.cpus.empty()) nodes.push_back(std::move(node));
  }
  return nodes;
}

size_t NumaNodeOfThread(std::span<const NumaNode> nodes, int thread, int threads) {
  NIBBLE_CHECK(!nodes.empty() && thread >= 0 && thread < threads);
  size_t cpus = 0;
  for (const NumaNode& node : nodes) cpus += node.cpus.size();
  const size_t place = static_cast<size_t>(thread) * cpus / static_cast<size_t>(threads);
  size_t end = 0;
  for (size_t i = 0; i + 1 < nodes.size(); ++i) {
    end += nodes[i].cpus.size();
    if (place < end) return i;
  }
  return nodes.size() - 1;
}

Status PinThisThread(std::span<const int> cpus) {
  const int capacity = cpus.empty() ? 1 : std::ranges::max(cpus) + 1;
  cpu_set_t* set = CPU_ALLOC(capacity);
  NIBBLE_CHECK(set != nullptr);
  const size_t bytes = CPU_ALLOC_SIZE(capacity);
  CPU_ZERO_S(bytes, set);
  for (const int cpu : cpus) CPU_SET_S(cpu, bytes, set);
  const int result = sched_setaffinity(0, bytes, set);
  const int error = errno;
  CPU_FREE(set);
  if (result == 0) return {};
  return IoError("a thread cannot be kept on its node's processors: {}", std::strerror(error));
}

Status InterleaveMemory(std::span<std::byte> memory, std::span<const NumaNode> nodes) {
  if (memory.empty() || nodes.empty()) return {};
  const auto most = static_cast<size_t>(std::ranges::max(nodes, {}, &NumaNode::id).id);
  std::vector<unsigned long> mask(most / kBitsPerWord + 1);
  for (const NumaNode& node : nodes) {
    const auto id = static_cast<size_t>(node.id);
    mask[id / kBitsPerWord] |= 1UL << (id % kBitsPerWord);
  }
  // Linux takes whole pages; buffers begin at one and own what follows up to the next.
  const size_t bytes = RoundUp(memory.size(), static_cast<size_t>(sysconf(_SC_PAGESIZE)));
  // One bit more than there are: Linux counts the bits from one.
  if (syscall(SYS_mbind, memory.data(), bytes, MPOL_INTERLEAVE, mask.data(),
              mask.size() * kBitsPerWord + 1, 0) == 0) {
    return {};
  }
  return IoError("memory cannot be spread over the nodes: {}", std::strerror(errno));
}

}  // namespace nibble
