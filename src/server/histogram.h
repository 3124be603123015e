#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace nibble::server {

// Counts of values up to ascending bounds, as Prometheus has them.
class Histogram {
 public:
  explicit Histogram(std::span<const double> bounds)
      : bounds_(bounds.begin(), bounds.end()), counts_(bounds.size() + 1) {}
  void Add(double value) {
    const auto at = std::ranges::lower_bound(bounds_, value);
    ++counts_[static_cast<size_t>(at - bounds_.begin())];
    sum_ += value;
    ++count_;
  }
  std::span<const double> bounds() const { return bounds_; }
  std::span<const uint64_t> counts() const { return counts_; }  // the last: above all bounds
  double sum() const { return sum_; }
  uint64_t count() const { return count_; }

 private:
  std::vector<double> bounds_;
  std::vector<uint64_t> counts_;
  double sum_ = 0;
  uint64_t count_ = 0;
};

}  // namespace nibble::server
