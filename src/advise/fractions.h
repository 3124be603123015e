#pragma once

#include "advise/bench.h"
#include "advise/limits.h"

namespace nibble {

// Shares of the machine's limits that a case reaches, over pieces of it that alternate with the
// limits' own loops.
struct Fraction {
  double median = 0;
  double best = 0;
};
struct LimitFractions {
  Fraction bandwidth;  // bytes of weights and KV per second / read bandwidth
  Fraction compute;    // seconds that the multiplications take at their peaks / seconds
  int alternations = 0;
};

// Each piece takes about as long as the loops (some ten milliseconds, or one step where that is
// longer), and is compared with the mean of the loops before and after it. The case is the one that
// bench.Run had last.
LimitFractions MeasureFractions(ModelBench& bench, LimitLoops& loops, int alternations = 15);

}  // namespace nibble
