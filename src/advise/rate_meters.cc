#include "advise/rate_meters.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>

#include "advise/calibration_cases.h"
#include "base/check.h"
#include "base/math.h"
#include "base/statistics.h"
#include "kernels/attention_kernels.h"
#include "platform/clock.h"
#include "platform/cpu.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

using calibration_cases::kCols;

// Of a near cache, for each thread: half of what second-level caches have today.
constexpr size_t kNearBytes = size_t{512} << 10;
constexpr size_t kLeastArena = size_t{128} << 20;

}  // namespace

// Codes of chance with small scales: a byte pattern whose f16 readings are finite. Read as f32 or
// bf16 some of its numbers would be denormal, at which processors may take a hundred times as long:
// these get exponents from -31.
std::vector<std::byte> RandomBlocks(Format format, size_t bytes) {
  std::mt19937 engine(1);
  std::vector<std::byte> out(bytes);
  const bool wide = format == Format::kF32 || format == Format::kBF16;
  for (size_t at = 0; at < bytes; at += sizeof(uint32_t)) {
    const uint32_t word =
        (static_cast<uint32_t>(engine()) & 0x3b3b3b3bU) | (wide ? 0x30003000U : 0U);
    std::memcpy(out.data() + at, &word, std::min(sizeof word, bytes - at));
  }
  if (format == Format::kMxfp4) {
    // As a power of two the pattern is near the smallest float, and products with it are denormal,
    // which costs up to twice the time: no model has such scales.
    const auto block = static_cast<size_t>(TraitsOf(format).block_bytes);
    for (size_t at = 0; at < bytes; at += block) {
      out[at] = static_cast<std::byte>(118 + (engine() & 7));
    }
  }
  return out;
}

std::vector<float> RandomFloats(size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

double Samples::typical() const { return Median(values_); }

double Samples::spread() const {
  std::vector<double> sorted = values_;
  std::ranges::sort(sorted);
  const size_t quarter = sorted.size() / 4;
  return (sorted[sorted.size() - 1 - quarter] - sorted[quarter]) / Median(sorted);
}

void StateSamples::Add(double seconds, const MachineState& before, const MachineState& after) {
  entries_.push_back(
      {seconds,
       {.read = (before.read + after.read) / 2, .cpu_s = (before.cpu_s + after.cpu_s) / 2}});
}

Samples StateSamples::NearAt(const MachineState& usual) const {
  Samples out;
  for (const Entry& entry : entries_) out.Add(entry.seconds * usual.cpu_s / entry.state.cpu_s);
  return out;
}

Samples StateSamples::FarAt(const MachineState& usual) const {
  constexpr double kNearly = 0.15;
  Samples steady;
  Samples all;
  for (const Entry& entry : entries_) {
    all.Add(entry.seconds);
    const double read = std::abs(std::log(entry.state.read / usual.read));
    const double cpu = std::abs(std::log(entry.state.cpu_s / usual.cpu_s));
    if (std::max(read, cpu) < kNearly) steady.Add(entry.seconds);
  }
  return steady.empty() ? all : steady;
}

MeterMatrix::MeterMatrix(Format format, MeterBench& bench) {
  const FormatTraits& traits = TraitsOf(format);
  const size_t row_bytes = traits.RowBytes(kCols);
  // Whole units of two panels for every thread.
  const auto share = static_cast<size_t>(32 * bench.pool().size());
  const size_t near = kNearBytes * static_cast<size_t>(bench.pool().size());
  rows_ = static_cast<int>(std::max(share, near / row_bytes / share * share));
  const std::vector<std::byte> file = RandomBlocks(format, row_bytes * static_cast<size_t>(rows_));
  const size_t bytes = PackedMatrix::Bytes(format, rows_, kCols);
  const size_t count = std::max<size_t>(1, bench.arena().size() / bytes);
  const auto place = [&](size_t i) { return bench.arena().subspan(i * bytes, bytes); };
  copies_.assign(count, PackedMatrix::Pack(format, rows_, kCols, file, place(0), bench.pool()));
  bench.pool().ParallelFor(std::ssize(copies_), 1, [&](int64_t begin, int64_t end, int) {
    for (auto i = static_cast<size_t>(std::max<int64_t>(begin, 1)); i < static_cast<size_t>(end);
         ++i) {
      copies_[i] = copies_[0].CopyTo(place(i));
    }
  });
}

double MeterMatrix::weights() const { return static_cast<double>(rows_) * kCols; }

MeterBench::MeterBench(ThreadPool& pool, Isa isa, bool quick, ReadProbe probe, StateLoop loop)
    : pool_(&pool),
      kernels_(&KernelsFor(isa)),
      quick_(quick),
      probe_(std::move(probe)),
      loop_(std::move(loop)) {}

MachineState MeterBench::State(bool read) {
  MachineState state{.read = read ? probe_.Sample() : 0, .cpu_s = loop_.Seconds()};
  if (read) reads_.push_back(state.read);
  cpu_s_.push_back(state.cpu_s);
  return state;
}

MachineState MeterBench::UsualState() const {
  return {.read = Median(reads_), .cpu_s = Median(cpu_s_)};
}

double MeterBench::Now() { return MonotonicSeconds(); }

Result<MeterBench> MeterBench::Create(ThreadPool& pool, Isa isa, bool quick) {
  // A virtual machine's share of a cache is less than what it is told of.
  const size_t caches = ReadTopology().last_level_cache;
  const size_t least = std::max((quick ? 2 : 4) * caches, kLeastArena);
  NIBBLE_TRY(ReadProbe probe, quick ? ReadProbe::OfSize(pool, least) : ReadProbe::OfMemory(pool));
  const size_t bytes = quick ? least : probe.Measure(0).bytes;
  NIBBLE_TRY(StateLoop loop, StateLoop::Create(pool, isa));
  MeterBench bench(pool, isa, quick, std::move(probe), std::move(loop));
  NIBBLE_TRY(bench.arena_, AlignedBuffer::Allocate(RoundUp(bytes, size_t{4096})));
  bench.arena_.Touch();
  Samples regions;
  for (int i = 0; i < 501; ++i) {
    const double started = MonotonicSeconds();
    pool.Run([](int) {});
    regions.Add(MonotonicSeconds() - started);
  }
  bench.region_s_ = regions.typical();
  return bench;
}

MatmulMeter::Point& MatmulMeter::PointOf(int rows) {
  const auto found = std::ranges::lower_bound(points_, rows, {}, &Point::rows);
  if (found != points_.end() && found->rows == rows) return *found;
  return *points_.insert(found, {.rows = rows, .near = {}, .far = {}});
}

Status MatmulMeter::Measure(MeterBench& bench, MeterMatrix& matrix, bool near_only) {
  using namespace calibration_cases;
  const std::span<const int> near_rows =
      bench.quick() || near_only ? std::span<const int>(kQuickNearRows) : kNearRows;
  std::span<const int> far_rows =
      bench.quick() || near_only ? std::span<const int>(kQuickFarRows) : kFarRows;
  if (near_only) far_rows = far_rows.first(1);
  const Act act = rates_.integer ? Act::kInt8 : Act::kF32;
  const ActNeeds needs = matrix.first().Needs(act);
  const int most = near_rows.back();
  const std::vector<float> x = RandomFloats(static_cast<size_t>(most) * kCols, 2);
  std::vector<float> y(static_cast<size_t>(most) * static_cast<size_t>(matrix.rows()));
  ActivationBlock block;
  NIBBLE_RETURN_IF_ERROR(block.Reserve(most, kCols, needs));
  const KernelTable kernels = KernelsFor(isa_);
  const auto prepare = [&](int rows) {
    block.Prepare(kernels, bench.pool(), DenseView(x.data(), rows, kCols), needs);
  };
  const auto multiply = [&](const PackedMatrix& weights, int rows) {
    const MatmulTask task = {.weights = &weights, .y = DenseView(y.data(), rows, matrix.rows())};
    Matmul(kernels, bench.pool(), act, block, std::span(&task, 1));
  };
  for (const int rows : near_rows) {
    prepare(rows);
    bench.Time(PointOf(rows).near, bench.quick() ? 2 : 4, 1 / matrix.weights(), bench.region_s(),
               [&] { multiply(matrix.first(), rows); });
  }
  for (const int rows : far_rows) {
    prepare(rows);
    bench.TimeFar(PointOf(rows).far, bench.quick() ? 1 : 3, 1 / matrix.weights(),
                  [&] { multiply(matrix.Next(), rows); });
  }
  return {};
}

KernelRates MatmulMeter::Rates(const Calibration& calibration, const MachineState& usual) const {
  // Where one of the two is so small a part of the other, noise would choose p.
  constexpr double kLeastPart = 0.3;
  KernelRates out = rates_;
  const double bytes = TraitsOf(out.format).BitsPerWeight() / 8;
  std::vector<double> overlaps;
  std::vector<double> spreads;
  double slowest = 0;
  double n = 0, sum_t = 0, sum_tt = 0, sum_c = 0, sum_ct = 0;
  for (const Point& point : points_) {
    if (point.near.empty()) continue;
    const double t = point.rows;
    const Samples near = point.near.NearAt(usual);
    slowest = std::max(slowest, near.typical());  // more rows never take less
    RowRate row{.rows = point.rows, .cpu_s = slowest};
    spreads.push_back(near.spread());
    if (!point.far.empty()) {
      const Samples steady = point.far.FarAt(usual);
      const double far = steady.typical();
      spreads.push_back(steady.spread());
      const double beyond =
          std::max(0.0, bytes / calibration.read_bandwidth - bytes / calibration.NearBandwidth());
      if (point.rows == 1) out.gemv_bandwidth = bytes / far;
      if (std::min(beyond, slowest) > kLeastPart * std::max(beyond, slowest)) {
        row.overlap = OverlapOf(beyond, slowest, far);
        overlaps.push_back(row.overlap);
      }
    }
    out.gemm_macs = std::max(out.gemm_macs, t / slowest);
    n += 1;
    sum_t += t;
    sum_tt += t * t;
    sum_c += slowest;
    sum_ct += slowest * t;
    out.rows.push_back(row);
  }
  NIBBLE_CHECK(!out.rows.empty() && out.gemv_bandwidth > 0);
  out.row_s_per_weight = (n * sum_ct - sum_t * sum_c) / (n * sum_tt - sum_t * sum_t);
  out.unpack_s_per_weight = (sum_c - out.row_s_per_weight * sum_t) / n;
  out.overlap_p = overlaps.empty() ? 1 : Median(overlaps);
  out.spread = Median(spreads);
  for (RowRate& row : out.rows) {
    if (row.overlap == 0) row.overlap = out.overlap_p;
  }
  return out;
}

}  // namespace nibble
