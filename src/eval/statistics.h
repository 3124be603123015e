#pragma once

#include <cstdint>
#include <span>

namespace nibble {

// Of n numbers; standard errors as llama-perplexity's: sqrt(variance / (n - 1)), 0 for n < 2.
struct MeanError {
  double mean = 0;
  double se = 0;
};
MeanError MeanOf(std::span<const double> values);

// Pearson's correlation; 1 when one of them does not vary.
double Correlation(std::span<const double> a, std::span<const double> b);

// Quantile 0 … 1 of ascending numbers, linear between neighbours (NumPy's default). NaN of none.
double Quantile(std::span<const double> ascending, double q);

}  // namespace nibble
