#pragma once

#include <span>

#include "advise/bench.h"
#include "advise/limits.h"

namespace nibble {

// A piece of work with the limit's own loop before and after it.
struct FractionPair {
  double reached = 0;  // rate of the piece
  double before = 0;   // rates of the loop
  double after = 0;

  double fraction() const { return 2 * reached / (before + after); }
  // The machine was the same on both sides: what it did between them can be told.
  bool steady() const;
};

// Shares of the machine's limits that a case reaches, over pieces of it that alternate with the
// limits' own loops.
struct Fraction {
  double median = 0;
  double best = 0;
  int unsteady = 0;          // pairs around which the limit changed
  bool all_counted = false;  // these too, because the steady ones were too few
};
// Of the steady pairs, unless fewer than a third are.
Fraction Summarise(std::span<const FractionPair> pairs);

struct LimitFractions {
  Fraction bandwidth;  // bytes of weights and KV per second / read bandwidth
  Fraction compute;    // seconds that the multiplications take at their peaks / seconds
  int alternations = 0;
};

// Each piece takes about as long as the loops (some ten milliseconds, or one step where that is
// longer), and is compared with the mean of the loops before and after it. Goes on until
// `alternations` pairs are steady for both limits, or three times as many pairs are made. The case
// is the one that bench.Run had last.
LimitFractions MeasureFractions(ModelBench& bench, LimitLoops& loops, int alternations = 15);

}  // namespace nibble
