#include "server/recent_latencies.h"

#include <algorithm>
#include <cmath>

namespace nibble::server {
namespace {

constexpr size_t kMostKept = 4096;

}  // namespace

void RecentLatencies::Add(double now_s, double value) {
  if (ring_.size() < kMostKept) {
    ring_.push_back({now_s, value});
    return;
  }
  ring_[next_] = {now_s, value};
  next_ = (next_ + 1) % kMostKept;
}

RecentLatencies::Percentiles RecentLatencies::Over(double now_s, double window_s) const {
  std::vector<double> values;
  for (const Value& one : ring_) {
    if (one.time_s >= now_s - window_s) values.push_back(one.value);
  }
  Percentiles out{.count = values.size()};
  if (values.empty()) return out;
  std::ranges::sort(values);
  const auto rank = [&](double share) {
    const double last = std::ceil(share * static_cast<double>(values.size()));
    return values[static_cast<size_t>(std::max(last, 1.0)) - 1];
  };
  out.p50 = rank(0.5);
  out.p90 = rank(0.9);
  out.p99 = rank(0.99);
  return out;
}

}  // namespace nibble::server
