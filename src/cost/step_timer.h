#pragma once

#include <utility>
#include <vector>

#include "cost/cost_model.h"
#include "cost/step_predictor.h"
#include "sched/step.h"

namespace nibble {

// How long steps take on the virtual clock.
class StepTimer {
 public:
  virtual ~StepTimer() = default;
  virtual double Seconds(const Step& step) = 0;  // >= 0
};

// By the cost model.
class ModelTimer : public StepTimer {
 public:
  explicit ModelTimer(CostModel model) : model_(std::move(model)) {}
  double Seconds(const Step& step) override;

 private:
  CostModel model_;
  std::vector<StepSequence> sequences_;  // reused
};

// By the scheduler's own table of prices: what a server fitted when it started.
class PriceTimer : public StepTimer {
 public:
  explicit PriceTimer(StepPrice price) : price_(std::move(price)) {}
  double Seconds(const Step& step) override { return price_.Seconds(step.load()); }

 private:
  StepPrice price_;
};

// The scheduler's table of prices as the cost model has them: steps of so many rows behind nothing,
// and what each position adds. A sum where the model takes the larger of two, so it is never below
// the model and at most twice as much.
StepPrice PriceOf(const CostModel& model, int max_rows);

}  // namespace nibble
