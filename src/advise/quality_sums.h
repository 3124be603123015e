#pragma once

#include <cstdint>
#include <vector>

#include "eval/divergence.h"

namespace nibble {

// What is kept of the samples of MeasureDivergence: sums, so that windows can be added in any order
// and over several runs. Means and errors are those of Summarise, but for the order of the sums.
struct QualitySums {
  struct Depth {  // predictions made in one eighth of the scored positions
    int64_t tokens = 0;
    double divergence = 0;
    double divergence_squared = 0;
  };
  static constexpr int kDepths = 8;

  int windows = 0;
  int64_t tokens = 0;
  double divergence = 0;
  double divergence_squared = 0;
  double loss = 0;  // of the candidate
  double loss_squared = 0;
  double base_loss = 0;
  int64_t same_top = 0;
  std::vector<Depth> depths = std::vector<Depth>(kDepths);

  QualitySums& operator+=(const QualitySums& other);
  MeanError Divergence() const;  // nats a prediction
  MeanError DivergenceAt(int depth) const;
  MeanError Perplexity() const;
  double BasePerplexity() const;
  MeanError SameTop() const;
};

// from, to: the scored positions of a window, [from, to).
QualitySums SumsOf(const DivergenceSamples& samples, int from, int to);

}  // namespace nibble
