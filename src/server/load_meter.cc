#include "server/load_meter.h"

#include <algorithm>
#include <cmath>

namespace nibble::server {
namespace {

constexpr double kWindowS = 10;
constexpr double kMostS = 600;

}  // namespace

void LoadMeter::Update(double elapsed, int64_t total, Rate& rate) {
  const double now = static_cast<double>(total - rate.last) / elapsed;
  const double weight = rate.known ? std::min(elapsed / kWindowS, 1.0) : 1;
  rate.per_s += weight * (now - rate.per_s);
  rate.last = total;
  rate.known = true;
}

void LoadMeter::Sample(double now_s, int64_t finished, int64_t rows, bool busy) {
  const double elapsed = now_s - last_s_;
  if (started_ && busy && elapsed > 0) {
    Update(elapsed, finished, finished_);
    Update(elapsed, rows, rows_);
  }
  finished_.last = finished;
  rows_.last = rows;
  last_s_ = now_s;
  started_ = true;
}

int LoadMeter::RetryAfter(int waiting, int64_t queued_tokens) const {
  double seconds = 1;
  if (finished_.per_s > 0) seconds = std::max(seconds, (waiting / 2.0 + 1) / finished_.per_s);
  if (rows_.per_s > 0) {
    seconds = std::max(seconds, static_cast<double>(queued_tokens) / 2 / rows_.per_s);
  }
  return static_cast<int>(std::ceil(std::min(seconds, kMostS)));
}

}  // namespace nibble::server
