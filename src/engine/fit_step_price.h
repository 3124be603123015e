#pragma once

#include <functional>
#include <span>
#include <vector>

#include "engine/executor.h"
#include "sched/step_price.h"

namespace nibble {

struct FitInput {
  std::span<const PoolSpec> pools;
  int max_rows = 1;
  int max_context = 1;
  std::function<double()> clock;  // seconds
  bool fine = false;              // steps of 2 and 4 rows, too
  double patience_s = 0.3;        // no further measurement begins after so long
};

// Runs steps of 1, 8, 16, 32 … rows of token 0, one of them an answer's beside a chunk of the
// others, and makes the table from their least times. The price of attention is measured on some
// rows behind many positions; for a row alone it is at least what the bytes take at the speed at
// which it reads the weights. Pages hold nothing afterwards, but their memory is there. An executor
// that fails gives a table that knows nothing.
struct FittedStepPrice {
  StepPrice price = {};
  std::vector<FormPages> touched = {};  // per group: pages that the measurements wrote
};
FittedStepPrice FitStepPrice(Executor& executor, const FitInput& input);

}  // namespace nibble
