#include "advise/limits.h"

#include <algorithm>
#include <atomic>

#include "kernels/peaks.h"
#include "platform/bandwidth.h"
#include "platform/clock.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

// Multiply-adds per second of all threads together, best of several rounds.
double MeasurePeak(ThreadPool& pool, int64_t (*loop)(int64_t), double seconds) {
  // Rounds that take about a millisecond.
  int64_t rounds = 1024;
  while (true) {
    const double started = MonotonicSeconds();
    loop(rounds);
    if (MonotonicSeconds() - started > 1e-3) break;
    rounds *= 2;
  }
  double best = 0;
  const double until = MonotonicSeconds() + seconds;
  do {
    std::atomic<int64_t> macs = 0;
    const double started = MonotonicSeconds();
    pool.Run([&](int) { macs += loop(rounds * 4); });
    best = std::max(best, static_cast<double>(macs) / (MonotonicSeconds() - started));
  } while (MonotonicSeconds() < until);
  return best;
}

double MeasureBarrier(ThreadPool& pool) {
  constexpr int kRounds = 2001;
  std::vector<double> times(kRounds);
  for (double& time : times) {
    const double started = MonotonicSeconds();
    pool.Run([](int) {});
    time = MonotonicSeconds() - started;
  }
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  return times[kRounds / 2];
}

}  // namespace

Result<MachineLimits> MeasureLimits(ThreadPool& pool, Isa isa, double seconds) {
  MachineLimits limits;
  limits.isa = isa;
  const PeakKernels& peaks = PeakKernelsFor(isa);
  const double share = seconds / 8;
  limits.int8_macs = MeasurePeak(pool, peaks.int8, share);
  limits.int4_macs = MeasurePeak(pool, peaks.int4, share);
  limits.f32_macs = MeasurePeak(pool, peaks.f32, share);
  limits.barrier_s = MeasureBarrier(pool);
  NIBBLE_TRY(limits.read_bandwidth, ProbeReadBandwidth(pool, 2 * share));
  const size_t cache = std::max<size_t>(ReadTopology().last_level_cache, size_t{1} << 20);
  for (const size_t bytes : {size_t{512} << 10, size_t{4} << 20, cache / 2, cache}) {
    NIBBLE_TRY(const double bandwidth, ProbeReadBandwidth(pool, share / 2, bytes));
    limits.cache_bandwidth.push_back({bytes, bandwidth});
  }
  return limits;
}

}  // namespace nibble
