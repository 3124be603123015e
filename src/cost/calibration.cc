#include "cost/calibration.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace nibble {
namespace {

double Between(double a, double b, double part) { return a + (b - a) * part; }

// The entries around a value on an ascending axis, and how far between them it is.
struct Bracket {
  size_t low = 0;
  size_t high = 0;
  double part = 0;
};
template <class Items, class Axis>
Bracket Around(const Items& items, double at, Axis axis) {
  Bracket bracket;
  while (bracket.high + 1 < items.size() && axis(items[bracket.high]) < at) ++bracket.high;
  bracket.low = bracket.high;
  if (bracket.high == 0 || axis(items[bracket.high]) <= at) return bracket;
  bracket.low = bracket.high - 1;
  const double from = axis(items[bracket.low]);
  bracket.part = (at - from) / (axis(items[bracket.high]) - from);
  return bracket;
}

AttentionRates Blend(const AttentionRates& a, const AttentionRates& b, double part) {
  AttentionRates out = a;
  out.page_s = Between(a.page_s, b.page_s, part);
  out.unit_s = Between(a.unit_s, b.unit_s, part);
  out.overlap_p = Between(a.overlap_p, b.overlap_p, part);
  return out;
}

}  // namespace

double Overlapped(double memory, double cpu, double p) {
  const double most = std::max(memory, cpu);
  if (most <= 0) return 0;
  return most * std::pow(1 + std::pow(std::min(memory, cpu) / most, p), 1 / p);
}

double OverlapOf(double memory, double cpu, double both) {
  double low = kLeastOverlap;
  double high = kMostOverlap;
  if (Overlapped(memory, cpu, low) <= both) return low;
  if (Overlapped(memory, cpu, high) >= both) return high;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (Overlapped(memory, cpu, middle) > both ? low : high) = middle;
  }
  return (low + high) / 2;
}

RowRate KernelRates::At(double wanted) const {
  const Bracket at = Around(rows, wanted, [](const RowRate& r) { return double(r.rows); });
  const RowRate& low = rows[at.low];
  const RowRate& high = rows[at.high];
  RowRate out{.rows = static_cast<int>(wanted),
              .cpu_s = Between(low.cpu_s, high.cpu_s, at.part),
              .overlap = Between(low.overlap, high.overlap, at.part)};
  if (wanted > rows.back().rows) out.cpu_s *= wanted / rows.back().rows;
  return out;
}

double Calibration::BandwidthOf(double bytes) const {
  if (cache_bandwidth.empty()) return read_bandwidth;
  const Bracket at =
      Around(cache_bandwidth, bytes, [](const BandwidthPoint& p) { return p.bytes; });
  const BandwidthPoint& low = cache_bandwidth[at.low];
  const BandwidthPoint& high = cache_bandwidth[at.high];
  if (at.part == 0) return high.bandwidth;
  const double part = std::log(bytes / low.bytes) / std::log(high.bytes / low.bytes);
  return Between(low.bandwidth, high.bandwidth, part);
}

double Calibration::NearBandwidth() const {
  return cache_bandwidth.empty() ? read_bandwidth : cache_bandwidth.front().bandwidth;
}

double Calibration::WorkSeconds(double bytes, double bandwidth, double cpu, double overlap) const {
  const double memory = bytes / bandwidth;
  const double beyond = std::max(0.0, memory - bytes / NearBandwidth());
  return std::max(memory, Overlapped(beyond, cpu, overlap));
}

Calibration Calibration::Scaled(double read, double cpu) const {
  Calibration out = *this;
  out.read_bandwidth *= read;
  for (BandwidthPoint& point : out.cache_bandwidth) {
    const bool cached = point.bytes <= static_cast<double>(machine.last_level_cache);
    point.bandwidth *= cached ? cpu : read;
  }
  for (KernelRates& kernel : out.kernels) {
    for (RowRate& row : kernel.rows) row.cpu_s /= cpu;
  }
  for (AttentionRates& one : out.attention) {
    one.page_s /= cpu;
    one.unit_s /= cpu;
  }
  out.barrier_s /= cpu;
  out.region_s /= cpu;
  for (double* term :
       {&out.overheads.step_s, &out.overheads.layer_s, &out.overheads.row_value_s,
        &out.overheads.place_value_s, &out.overheads.gate_value_s, &out.overheads.logit_value_s}) {
    *term /= cpu;
  }
  return out;
}

const KernelRates* Calibration::KernelOf(Format format, bool integer) const {
  const auto found = std::ranges::find_if(kernels, [&](const KernelRates& one) {
    return one.format == format && one.integer == integer && one.isa == isa;
  });
  return found == kernels.end() ? nullptr : &*found;
}

Result<AttentionRates> Calibration::AttentionOf(KvFormat kv, bool integer, int head_dim,
                                                double group) const {
  // By head size, then group, as they were measured.
  std::vector<AttentionRates> by_head;
  std::vector<AttentionRates> same;
  for (size_t i = 0; i < attention.size(); ++i) {
    const AttentionRates& one = attention[i];
    if (one.kv == kv && one.integer == integer) same.push_back(one);
  }
  if (same.empty()) {
    return BadInput("attention over {} pages was not calibrated; run nibble calibrate",
                    TraitsOf(kv).name);
  }
  std::ranges::sort(same, {},
                    [](const AttentionRates& r) { return std::array{r.head_dim, r.group}; });
  for (size_t begin = 0; begin < same.size();) {
    size_t end = begin;
    while (end < same.size() && same[end].head_dim == same[begin].head_dim) ++end;
    const std::vector<AttentionRates> groups(same.begin() + static_cast<ptrdiff_t>(begin),
                                             same.begin() + static_cast<ptrdiff_t>(end));
    const Bracket at =
        Around(groups, group, [](const AttentionRates& r) { return double(r.group); });
    by_head.push_back(Blend(groups[at.low], groups[at.high], at.part));
    begin = end;
  }
  const Bracket at =
      Around(by_head, head_dim, [](const AttentionRates& r) { return double(r.head_dim); });
  AttentionRates out = Blend(by_head[at.low], by_head[at.high], at.part);
  // Beyond what was measured work grows with the channels.
  const double size = head_dim / static_cast<double>(by_head[at.high].head_dim);
  if (at.part == 0 && size != 1) {
    out.page_s *= size;
    out.unit_s *= size;
  }
  return out;
}

Status CheckMachine(const Calibration& calibration, const Machine& machine) {
  if (calibration.machine == machine) return {};
  return BadInput(
      "the device file is of another machine ({}), this one is {}; run nibble calibrate",
      calibration.machine.Describe(), machine.Describe());
}

}  // namespace nibble
