#include "advise/calibrate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <vector>

#include "advise/calibration_cases.h"
#include "advise/limits.h"
#include "advise/rate_meters.h"
#include "advise/step_overheads.h"
#include "base/statistics.h"
#include "platform/clock.h"
#include "platform/machine.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

// Rounds over all kernels go on while another fits into so many seconds.
constexpr double kKernelSeconds = 24;
constexpr double kAttentionSeconds = 9;

class Calibrating {
 public:
  Calibrating(ThreadPool& pool, const CalibrateOptions& options, Calibration& out, MeterBench bench)
      : pool_(pool), options_(options), out_(out), bench_(std::move(bench)) {}

  Status Run() {
    out_.region_s = bench_.region_s();
    NIBBLE_RETURN_IF_ERROR(MeasureBandwidth());
    NIBBLE_RETURN_IF_ERROR(MeasureKernels());
    NIBBLE_RETURN_IF_ERROR(MeasureAttention());
    NIBBLE_RETURN_IF_ERROR(Report("small models", 0.9));
    NIBBLE_TRY(out_.overheads, MeasureRowCosts(bench_));
    NIBBLE_TRY(out_.overheads, FitOverheads(bench_, out_, out_.quick ? 3 : 9, [&](double part) {
                 return Report("small models", 0.9 + part / 10).has_value();
               }));
    return {};
  }

 private:
  Status Report(std::string_view stage, double part) const {
    if (!options_.progress || options_.progress(stage, part)) return {};
    return Fail(ErrorKind::kCancelled, "stopped");
  }

  Status MeasureBandwidth();
  void UseUsualBandwidth();
  Status MeasureKernels();
  Status MeasureAttention();

  ThreadPool& pool_;
  const CalibrateOptions& options_;
  Calibration& out_;
  MeterBench bench_;
};

Status Calibrating::MeasureBandwidth() {
  NIBBLE_RETURN_IF_ERROR(Report("read bandwidth", 0));
  const double most = static_cast<double>(bench_.arena().size());
  const auto measure = [&](auto&& read, double seconds, double* spread = nullptr) {
    Samples per_byte;
    const double until = MonotonicSeconds() + seconds;
    do {
      per_byte.Add(1 / read());
    } while (MonotonicSeconds() < until);
    if (spread != nullptr) *spread = per_byte.spread();
    return 1 / per_byte.typical();
  };
  out_.read_bandwidth =
      measure([&] { return bench_.State(true).read; }, out_.quick ? 0.3 : 1.5, &out_.read_spread);
  // From what a near cache holds up to memory, by factors of √2.
  for (double bytes = size_t{1} << 20; bytes < 0.9 * most; bytes *= std::sqrt(2.0)) {
    NIBBLE_TRY(ReadProbe probe, ReadProbe::OfSize(pool_, static_cast<size_t>(bytes)));
    out_.cache_bandwidth.push_back(
        {bytes, measure([&] { return probe.Round(); }, out_.quick ? 0.02 : 0.1)});
  }
  out_.cache_bandwidth.push_back({most, out_.read_bandwidth});
  // A larger working set is never read faster.
  for (size_t i = out_.cache_bandwidth.size() - 1; i > 0; --i) {
    double& before = out_.cache_bandwidth[i - 1].bandwidth;
    before = std::max(before, out_.cache_bandwidth[i].bandwidth);
  }
  for (int threads = 1; threads < pool_.size(); threads *= 2) {
    ThreadPool some(threads, pool_.nodes());
    NIBBLE_TRY(ReadProbe probe, ReadProbe::OfSize(some, bench_.arena().size()));
    out_.thread_bandwidth.push_back(
        {threads, measure([&] { return probe.Round(); }, out_.quick ? 0.1 : 0.5)});
  }
  out_.thread_bandwidth.push_back({pool_.size(), out_.read_bandwidth});
  return {};
}

// The median of the whole run in place of its first seconds': others may have used memory then.
void Calibrating::UseUsualBandwidth() {
  const double change = bench_.UsualState().read / out_.read_bandwidth;
  out_.read_bandwidth *= change;
  out_.thread_bandwidth.back().bandwidth = out_.read_bandwidth;
  double least = 0;
  for (auto point = out_.cache_bandwidth.rbegin(); point != out_.cache_bandwidth.rend(); ++point) {
    if (point->bytes > static_cast<double>(out_.machine.last_level_cache)) {
      point->bandwidth *= change;
    }
    least = point->bandwidth = std::max(point->bandwidth, least);
  }
}

// Meters of one format: this instruction set first, for the others a few points in the first round.
struct FormatMeters {
  Format format;
  std::vector<MatmulMeter> usual = {};
  std::vector<MatmulMeter> others = {};
};

std::vector<FormatMeters> MetersOf(Isa usual, bool quick) {
  std::vector<FormatMeters> out;
  for (const FormatTraits& traits : AllFormats()) {
    FormatMeters meters{.format = traits.format};
    for (const Isa isa : SupportedIsas()) {
      if (isa != usual && (quick || isa == Isa::kScalar)) continue;
      for (const bool integer : {true, false}) {
        if (integer && traits.activation_group == 0) continue;
        (isa == usual ? meters.usual : meters.others).emplace_back(traits.format, integer, isa);
      }
    }
    out.push_back(std::move(meters));
  }
  return out;
}

Status Calibrating::MeasureKernels() {
  std::vector<FormatMeters> all = MetersOf(out_.isa, out_.quick);
  const double started = MonotonicSeconds();
  for (int round = 0; round < (out_.quick ? 1 : 5); ++round) {
    const double spent = MonotonicSeconds() - started;
    if (round > 0 && spent * (round + 1) / round > kKernelSeconds) break;
    for (FormatMeters& meters : all) {
      const double whole = std::max(kKernelSeconds, spent);
      NIBBLE_RETURN_IF_ERROR(
          Report(TraitsOf(meters.format).name,
                 0.05 + 0.6 * std::min(1.0, (MonotonicSeconds() - started) / whole)));
      MeterMatrix matrix(meters.format, bench_);
      for (MatmulMeter& meter : meters.usual) {
        NIBBLE_RETURN_IF_ERROR(meter.Measure(bench_, matrix, false));
      }
      if (round > 0) continue;
      for (MatmulMeter& meter : meters.others) {
        NIBBLE_RETURN_IF_ERROR(meter.Measure(bench_, matrix, true));
      }
    }
  }
  UseUsualBandwidth();
  const MachineState usual = bench_.UsualState();
  for (const FormatMeters& meters : all) {
    for (const std::vector<MatmulMeter>* list : {&meters.usual, &meters.others}) {
      for (const MatmulMeter& meter : *list) out_.kernels.push_back(meter.Rates(out_, usual));
    }
  }
  return {};
}

Status Calibrating::MeasureAttention() {
  std::vector<AttentionMeter> meters;
  // Forms that are written first: the others' newest pages are such.
  for (const bool sealed : {false, true}) {
    for (const KvFormatTraits& traits : AllKvFormats()) {
      if (traits.sealed_only != sealed) continue;
      for (const bool integer : {true, false}) {
        if (integer && !traits.integer) continue;
        for (const int head_dim : calibration_cases::kHeadDims) {
          meters.emplace_back(traits.format, integer, head_dim);
        }
      }
    }
  }
  const double started = MonotonicSeconds();
  for (int round = 0; round < (out_.quick ? 1 : 3); ++round) {
    const double spent = MonotonicSeconds() - started;
    if (round > 0 && spent * (round + 1) / round > kAttentionSeconds) break;
    for (AttentionMeter& meter : meters) {
      NIBBLE_RETURN_IF_ERROR(
          Report(TraitsOf(meter.kv()).name,
                 0.65 + 0.25 * std::min(1.0, (MonotonicSeconds() - started) / kAttentionSeconds)));
      NIBBLE_RETURN_IF_ERROR(meter.Measure(bench_));
    }
  }
  const MachineState usual = bench_.UsualState();
  std::map<int, std::vector<AttentionRates>> open;  // f16, by head size
  for (const AttentionMeter& meter : meters) {
    const bool own = !TraitsOf(meter.kv()).sealed_only;
    std::vector<AttentionRates> rates =
        meter.Rates(out_, usual, own ? std::span<const AttentionRates>() : open[meter.head_dim()]);
    out_.attention.insert(out_.attention.end(), rates.begin(), rates.end());
    if (meter.kv() == KvFormat::kF16) open[meter.head_dim()] = std::move(rates);
  }
  return {};
}

}  // namespace

Result<Calibration> Calibrate(ThreadPool& pool, Isa isa, const CalibrateOptions& options) {
  const double started = MonotonicSeconds();
  Calibration out;
  out.machine = ReadMachine();
  out.isa = isa;
  out.threads = pool.size();
  out.quick = options.quick;
  out.memory_bytes = static_cast<double>(ReadTopology().memory_total);
  {
    NIBBLE_TRY(LimitLoops loops, LimitLoops::Create(pool, isa));
    NIBBLE_TRY(const MachineLimits limits, MeasureLimits(loops, options.quick ? 0.2 : 1));
    out.int4_macs = limits.median.macs.int4;
    out.int8_macs = limits.median.macs.int8;
    out.f32_macs = limits.median.macs.f32;
    out.barrier_s = limits.barrier_s;
  }
  NIBBLE_TRY(MeterBench bench, MeterBench::Create(pool, isa, options.quick));
  NIBBLE_RETURN_IF_ERROR(Calibrating(pool, options, out, std::move(bench)).Run());
  out.seconds = MonotonicSeconds() - started;
  return out;
}

}  // namespace nibble
