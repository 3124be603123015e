#include "cost/step_timer.h"

#include <algorithm>
#include <vector>

namespace nibble {

double ModelTimer::Seconds(const Step& step) {
  sequences_.clear();
  for (const StepSpan& span : step.spans()) {
    sequences_.push_back({.first = span.first,
                          .rows = span.rows,
                          .logit_rows = span.ReachesEnd() ? 1 : 0,
                          .count = 1});
  }
  return model_.StepTime(sequences_).value;
}

StepPrice PriceOf(const CostModel& model, int max_rows) {
  const auto seconds = [&](const StepSequence& one) { return model.StepTime({&one, 1}).value; };
  std::vector<StepPrice::Point> points;
  for (int rows = 1; rows < max_rows; rows *= 2) {
    points.push_back({rows, seconds({.first = 0, .rows = rows})});
  }
  points.push_back({max_rows, seconds({.first = 0, .rows = max_rows})});
  // A position far from the beginning, where windows are full: what it adds for each row that sees
  // it, and what its bytes alone add for the first.
  constexpr int kFar = 1 << 14;
  StepWork near, far;
  model.AddRows(near, 0, 1, false);
  model.AddRows(far, kFar, 1, false);
  const DecodeCost a = model.Step(near), b = model.Step(far);
  double read = (b.memory_time - a.memory_time).value / kFar;
  double token = (b.compute_time - a.compute_time).value / kFar;
  if (model.calibrated()) {
    constexpr int kRows = 64;
    const double chunk =
        seconds({.first = kFar, .rows = kRows}) - seconds({.first = 0, .rows = kRows});
    const double row = seconds({.first = kFar, .rows = 1}) - seconds({.first = 0, .rows = 1});
    token = chunk / kRows / kFar;
    read = row / kFar - token;
  }
  const StepSequence all{.first = 0, .rows = 1, .logit_rows = 1, .count = max_rows};
  const double logit = (seconds(all) - points.back().seconds) / max_rows;
  return {std::move(points), std::max(token, 0.0), std::max(logit, 0.0), std::max(read, 0.0)};
}

}  // namespace nibble
