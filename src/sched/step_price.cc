#include "sched/step_price.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace nibble {

StepLoad LoadOf(int first, int rows, bool wants_logits) {
  // Row i reads positions 0 … first + i.
  const int64_t tokens = int64_t{rows} * (2 * int64_t{first} + rows + 1) / 2;
  return {rows, tokens, wants_logits ? 1 : 0, int64_t{first} + rows};
}

StepPrice::StepPrice(std::vector<Point> points, double kv_token_s, double logit_row_s,
                     double kv_read_s)
    : points_(std::move(points)),
      kv_token_s_(std::max(kv_token_s, 0.0)),
      logit_row_s_(std::max(logit_row_s, 0.0)),
      kv_read_s_(std::max(kv_read_s, 0.0)) {
  NIBBLE_CHECK(!points_.empty());
  for (size_t i = 1; i < points_.size(); ++i) {
    NIBBLE_CHECK(points_[i].rows > points_[i - 1].rows);
    points_[i].seconds = std::max(points_[i].seconds, points_[i - 1].seconds);
  }
}

double StepPrice::Seconds(const StepLoad& load) const {
  if (points_.empty() || load.rows == 0) return 0;
  double seconds = points_[0].seconds;
  if (points_.size() > 1 && load.rows > points_[0].rows) {
    size_t i = 1;
    while (i + 1 < points_.size() && points_[i].rows < load.rows) ++i;
    const Point& a = points_[i - 1];
    const Point& b = points_[i];
    seconds = a.seconds + (b.seconds - a.seconds) * (load.rows - a.rows) / (b.rows - a.rows);
  }
  return seconds + kv_token_s_ * static_cast<double>(load.kv_tokens) +
         logit_row_s_ * load.logit_rows + kv_read_s_ * static_cast<double>(load.kv_reads);
}

int RowsWithin(const StepPrice& price, const StepLoad& load, int first, int wanted, double limit) {
  int low = 0, high = wanted;  // low fits
  while (low < high) {
    const int middle = low + (high - low + 1) / 2;
    if (price.Seconds(load + LoadOf(first, middle, false)) <= limit) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace nibble
