#include "platform/bandwidth.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "platform/clock.h"
#include "platform/cpu.h"
#include "platform/memory.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

using Line = uint64_t __attribute__((vector_size(64)));

constexpr size_t kBlock = 4 * sizeof(Line);
// Two distances hide the memory's latency: into the nearest cache shortly before use, into the next
// one long before (one distance alone reaches 82% of this loop).
constexpr size_t kNear = 4096;
constexpr size_t kFar = 32768;

uint64_t ReadAll(const std::byte* data, size_t bytes) {
  Line sum[4] = {};
  const auto* lines = reinterpret_cast<const Line*>(data);
  for (size_t at = 0; at + kBlock <= bytes; at += kBlock) {
    for (size_t j = 0; j < 4; ++j) {
      __builtin_prefetch(data + at + kNear + j * sizeof(Line), 0, 3);
      __builtin_prefetch(data + at + kFar + j * sizeof(Line), 0, 2);
      sum[j] ^= lines[at / sizeof(Line) + j];
    }
  }
  const Line all = (sum[0] ^ sum[1]) ^ (sum[2] ^ sum[3]);
  uint64_t result = 0;
  for (int i = 0; i < 8; ++i) result ^= all[i];
  return result;
}

size_t DefaultBytes() {
  const CpuTopology topology = ReadTopology();
  constexpr size_t kMost = size_t{2} << 30;
  constexpr size_t kLeast = size_t{1} << 20;
  return std::max(kLeast,
                  std::min({4 * topology.last_level_cache, kMost, topology.memory_available / 4}));
}

}  // namespace

Result<double> ProbeReadBandwidth(ThreadPool& pool, double seconds, size_t bytes) {
  if (bytes == 0) bytes = DefaultBytes();
  const auto threads = static_cast<size_t>(pool.size());
  const size_t share = std::max(kBlock, bytes / threads / kBlock * kBlock);
  NIBBLE_TRY(AlignedBuffer buffer, AlignedBuffer::Allocate(share * threads));
  // Each thread touches its own part first, so that it lies in its own memory node.
  pool.Run([&](int thread) {
    std::memset(buffer.data() + static_cast<size_t>(thread) * share, thread + 1, share);
  });
  std::atomic<uint64_t> sink = 0;
  double best = 0;
  const double end = MonotonicSeconds() + seconds;
  do {
    const double start = MonotonicSeconds();
    pool.Run([&](int thread) {
      sink += ReadAll(buffer.data() + static_cast<size_t>(thread) * share, share);
    });
    const double elapsed = MonotonicSeconds() - start;
    if (elapsed > 0) best = std::max(best, static_cast<double>(share * threads) / elapsed);
  } while (MonotonicSeconds() < end);
  return best;
}

}  // namespace nibble
