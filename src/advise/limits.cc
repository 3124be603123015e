#include "advise/limits.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <utility>

#include "base/statistics.h"
#include "kernels/peaks.h"
#include "platform/clock.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

double MeasureRegion(ThreadPool& pool) {
  std::vector<double> times(2001);
  for (double& time : times) {
    const double started = MonotonicSeconds();
    pool.Run([](int) {});
    time = MonotonicSeconds() - started;
  }
  return Median(std::move(times));
}

double MeasureBarrier(ThreadPool& pool) {
  std::vector<double> times(2001);
  pool.Run([&](int thread) {
    for (double& time : times) {
      const double started = MonotonicSeconds();
      pool.Barrier(thread);
      if (thread == 0) time = MonotonicSeconds() - started;
    }
  });
  return Median(std::move(times));
}

}  // namespace

LimitLoops::Peak LimitLoops::MakePeak(Loop loop) {
  Peak peak{.loop = loop, .rounds = 1024};
  while (true) {
    const double started = MonotonicSeconds();
    loop(peak.rounds);
    if (MonotonicSeconds() - started > 1e-3) return peak;
    peak.rounds *= 2;
  }
}

Result<LimitLoops> LimitLoops::Create(ThreadPool& pool, Isa isa) {
  NIBBLE_TRY(ReadProbe read, ReadProbe::OfMemory(pool));
  LimitLoops loops(pool, isa, std::move(read));
  const PeakKernels& peaks = PeakKernelsFor(isa);
  loops.int4_ = MakePeak(peaks.int4);
  loops.int8_ = MakePeak(peaks.int8);
  loops.f32_ = MakePeak(peaks.f32);
  return loops;
}

double LimitLoops::Run(const Peak& peak) {
  std::atomic<int64_t> macs = 0;
  const double started = MonotonicSeconds();
  pool_->Run([&](int) { macs += peak.loop(peak.rounds); });
  return static_cast<double>(macs) / (MonotonicSeconds() - started);
}

LimitRates LimitLoops::Round() {
  return {.read = read_.Round(),
          .macs = {.int4 = Run(int4_), .int8 = Run(int8_), .f32 = Run(f32_)}};
}

Result<MachineLimits> MeasureLimits(LimitLoops& loops, double seconds) {
  constexpr int kLeastRounds = 15;
  MachineLimits limits;
  limits.isa = loops.isa();
  limits.barrier_s = MeasureBarrier(loops.pool());
  limits.region_s = MeasureRegion(loops.pool());
  std::vector<LimitRates> rounds;
  const double until = MonotonicSeconds() + seconds / 2;
  while (std::ssize(rounds) < kLeastRounds || MonotonicSeconds() < until) {
    rounds.push_back(loops.Round());
  }
  const auto summarise = [&](auto rate) {
    std::vector<double> values;
    for (LimitRates& round : rounds) values.push_back(std::invoke(rate, round));
    std::invoke(rate, limits.best) = std::ranges::max(values);
    std::invoke(rate, limits.median) = Median(std::move(values));
  };
  summarise([](LimitRates& r) -> double& { return r.read; });
  summarise([](LimitRates& r) -> double& { return r.macs.int4; });
  summarise([](LimitRates& r) -> double& { return r.macs.int8; });
  summarise([](LimitRates& r) -> double& { return r.macs.f32; });
  const ReadRates read = loops.MeasureRead(0);
  limits.read_form = read.form;
  limits.read_bytes = read.bytes;
  const size_t cache = std::max<size_t>(ReadTopology().last_level_cache, size_t{1} << 20);
  for (const size_t bytes : {size_t{512} << 10, size_t{4} << 20, cache / 2, cache}) {
    NIBBLE_TRY(ReadProbe probe, ReadProbe::OfSize(loops.pool(), bytes));
    limits.cache_bandwidth.push_back({bytes, probe.Measure(seconds / 16).best});
  }
  return limits;
}

}  // namespace nibble
