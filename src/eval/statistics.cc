#include "eval/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace nibble {

MeanError MeanOf(std::span<const double> values) {
  const auto n = static_cast<double>(values.size());
  if (values.empty()) return {};
  double sum = 0;
  for (const double value : values) sum += value;
  MeanError result = {.mean = sum / n, .se = 0};
  if (values.size() < 2) return result;
  double squares = 0;
  for (const double value : values) squares += (value - result.mean) * (value - result.mean);
  result.se = std::sqrt(squares / n / (n - 1));
  return result;
}

double Correlation(std::span<const double> a, std::span<const double> b) {
  const double mean_a = MeanOf(a).mean;
  const double mean_b = MeanOf(b).mean;
  double ab = 0;
  double aa = 0;
  double bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - mean_a) * (b[i] - mean_b);
    aa += (a[i] - mean_a) * (a[i] - mean_a);
    bb += (b[i] - mean_b) * (b[i] - mean_b);
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 1;
}

double Quantile(std::span<const double> ascending, double q) {
  if (ascending.empty()) return std::numeric_limits<double>::quiet_NaN();
  const double at = q * static_cast<double>(ascending.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, ascending.size() - 1);
  const double part = at - static_cast<double>(below);
  return ascending[below] + part * (ascending[above] - ascending[below]);
}

}  // namespace nibble
