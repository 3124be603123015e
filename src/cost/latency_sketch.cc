#include "cost/latency_sketch.h"

namespace nibble {

// The value at this place, from 0, of the sorted ones. Those of one bucket are taken as evenly
// spread over it.
double LatencySketch::Ranked(int64_t place) const {
  int64_t before = 0;
  for (int64_t i = 0; i < kBuckets; ++i) {
    const int64_t here = buckets_[static_cast<size_t>(i)];
    if (place >= before + here) {
      before += here;
      continue;
    }
    const auto low = std::bit_cast<double>((i + kLow) << kShift);
    const auto high = std::bit_cast<double>((i + 1 + kLow) << kShift);
    const double part = (static_cast<double>(place - before) + 0.5) / static_cast<double>(here);
    return i == 0 ? 0 : low + (high - low) * part;
  }
  return 0;
}

double LatencySketch::At(double fraction) const {
  const double place = fraction * static_cast<double>(count_ - 1);
  const auto low = static_cast<int64_t>(place);
  const double value = Ranked(low);
  const double next = Ranked(std::min(low + 1, count_ - 1));
  return value + (next - value) * (place - static_cast<double>(low));
}

Summary LatencySketch::Summarised() const {
  if (count_ == 0) return {};
  return {
      .mean = sum_ / static_cast<double>(count_), .p50 = At(0.5), .p90 = At(0.9), .p99 = At(0.99)};
}

}  // namespace nibble
