#pragma once

#include <cstdint>

namespace nibble::server {

// How fast requests end and tokens are computed, so that a refused client is told when to come
// back. Rates are means over about ten seconds in which the engine was busy.
class LoadMeter {
 public:
  // Totals since the start, a few times a second.
  void Sample(double now_s, int64_t finished, int64_t rows, bool busy);

  // Seconds after which half of what waits will have been served, 1 to 600; 1 before anything was
  // measured.
  int RetryAfter(int waiting, int64_t queued_tokens) const;

  double finished_per_s() const { return finished_.per_s; }
  double rows_per_s() const { return rows_.per_s; }

 private:
  struct Rate {
    int64_t last = 0;
    double per_s = 0;
    bool known = false;
  };
  static void Update(double elapsed, int64_t total, Rate& rate);

  double last_s_ = 0;
  bool started_ = false;
  Rate finished_;
  Rate rows_;
};

}  // namespace nibble::server
