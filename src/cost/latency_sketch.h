#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "cost/serving_report.h"

namespace nibble {

// Percentiles of any number of durations in constant memory. Buckets are the values whose first
// kBits binary digits are equal, so a percentile is off by 2^-kBits of itself at most, 0.05%; the
// mean is exact but for rounding. Between 2^-40 s (1 ps) and 2^40 s (35,000 years); others count as
// the ends.
class LatencySketch {
 public:
  static constexpr int kBits = 11;

  void Add(double seconds) {
    sum_ += seconds;
    ++count_;
    if (buckets_.empty()) buckets_.resize(kBuckets);
    ++buckets_[static_cast<size_t>(std::clamp<int64_t>(IndexOf(seconds), 0, kBuckets - 1))];
  }

  int64_t count() const { return count_; }
  // Zeros for no values.
  Summary Summarised() const;

 private:
  static constexpr int kShift = 52 - kBits;
  static constexpr int64_t kLow = int64_t{1023 - 40} << kBits;
  static constexpr int64_t kBuckets = int64_t{80} << kBits;
  static int64_t IndexOf(double seconds) {
    return (std::bit_cast<int64_t>(std::max(seconds, 0.0)) >> kShift) - kLow;
  }
  double Ranked(int64_t place) const;
  double At(double fraction) const;  // by numpy's rule: linear between the two nearest

  std::vector<int64_t> buckets_;
  int64_t count_ = 0;
  double sum_ = 0;
};

}  // namespace nibble
