#pragma once

#include <string>
#include <vector>

#include "advise/model_work.h"
#include "base/result.h"
#include "platform/bandwidth.h"
#include "platform/cpu.h"

namespace nibble {

class ThreadPool;

// Rates of one moment, all threads together.
struct LimitRates {
  double read = 0;  // bytes/s from memory
  Macs macs;        // multiply-adds/s: unsigned codes up to 15 × int8, unsigned × signed bytes, f32

  // Seconds that multiplying takes at least, by the peak of each kind.
  double SecondsFor(const Macs& work) const {
    return work.int4 / macs.int4 + work.int8 / macs.int8 + work.f32 / macs.f32;
  }
};

// The loops that find them, ready to run for some milliseconds at any time: beside what is
// measured, because the machine's rates change by tens of percent within a second when others use
// it.
class LimitLoops {
 public:
  static Result<LimitLoops> Create(ThreadPool& pool, Isa isa);

  LimitRates Round();
  Isa isa() const { return isa_; }
  ThreadPool& pool() { return *pool_; }
  ReadRates MeasureRead(double seconds) { return read_.Measure(seconds); }

 private:
  using Loop = int64_t (*)(int64_t rounds);
  struct Peak {
    Loop loop = nullptr;
    int64_t rounds = 0;  // about a millisecond
  };
  LimitLoops(ThreadPool& pool, Isa isa, ReadProbe read)
      : pool_(&pool), isa_(isa), read_(std::move(read)) {}
  static Peak MakePeak(Loop loop);
  double Run(const Peak& peak);

  ThreadPool* pool_;
  Isa isa_;
  ReadProbe read_;
  Peak int4_;
  Peak int8_;
  Peak f32_;
};

struct CacheBandwidth {
  size_t bytes = 0;      // working set, all threads together
  double bandwidth = 0;  // bytes per second, best of at least 15 rounds
};

// What this machine can do, measured now with the pool's threads.
struct MachineLimits {
  LimitRates best;  // of at least 15 rounds
  LimitRates median;
  std::string read_form;  // of the loop that read fastest
  size_t read_bytes = 0;  // of its buffer
  std::vector<CacheBandwidth> cache_bandwidth;
  double barrier_s = 0;  // median of one ThreadPool::Barrier
  double region_s = 0;   // median of one empty parallel region
  Isa isa = Isa::kScalar;
};
Result<MachineLimits> MeasureLimits(LimitLoops& loops, double seconds = 2);

}  // namespace nibble
