#pragma once

#include <vector>

#include "base/result.h"
#include "platform/cpu.h"

namespace nibble {

class ThreadPool;

struct CacheBandwidth {
  size_t bytes = 0;      // working set, all threads together
  double bandwidth = 0;  // bytes per second
};

// What this machine can do at best, measured now with the pool's threads.
struct MachineLimits {
  double read_bandwidth = 0;  // bytes/s over at least four times the last-level cache
  std::vector<CacheBandwidth> cache_bandwidth;
  double int4_macs = 0;  // multiply-adds per second, unsigned codes up to 15 × int8
  double int8_macs = 0;  // unsigned × signed bytes
  double f32_macs = 0;
  double barrier_s = 0;  // median of one empty parallel region
  Isa isa = Isa::kScalar;
};
Result<MachineLimits> MeasureLimits(ThreadPool& pool, Isa isa, double seconds = 3);

}  // namespace nibble
