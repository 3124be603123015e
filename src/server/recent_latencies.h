#pragma once

#include <cstddef>
#include <vector>

namespace nibble::server {

// Percentiles of what was measured in the last seconds, for a view of the present; the histograms
// of /metrics hold all of it.
class RecentLatencies {
 public:
  struct Percentiles {
    size_t count = 0;
    double p50 = 0;
    double p90 = 0;
    double p99 = 0;
  };

  void Add(double now_s, double value);
  // Of the values of the last `window_s` seconds, of the last 4096 at most. Nearest rank.
  Percentiles Over(double now_s, double window_s) const;

 private:
  struct Value {
    double time_s;
    double value;
  };
  std::vector<Value> ring_;
  size_t next_ = 0;
};

}  // namespace nibble::server
