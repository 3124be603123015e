#include "eval/paired.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace nibble {
namespace {

// Twice the smaller tail of the binomial distribution with probability one half (McNemar 1947, in
// its exact form), at most 1.
double ExactP(int64_t a, int64_t b) {
  const auto n = static_cast<double>(a + b);
  double tail = 0;
  for (int64_t k = 0; k <= std::min(a, b); ++k) {
    const auto i = static_cast<double>(k);
    tail += std::exp(std::lgamma(n + 1) - std::lgamma(i + 1) - std::lgamma(n - i + 1) -
                     n * std::log(2.0));
  }
  return std::min(1.0, 2 * tail);
}

}  // namespace

MeanError ShareOf(std::span<const uint8_t> right) {
  const auto n = static_cast<double>(right.size());
  if (right.empty()) return {};
  const double share = static_cast<double>(std::ranges::count(right, 1)) / n;
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  return {.mean = share, .se = n > 1 ? std::sqrt(share * (1 - share) / (n - 1)) : kUnknown};
}

PairedAnswers ComparePaired(std::span<const uint8_t> candidate, std::span<const uint8_t> base) {
  PairedAnswers result;
  result.items = std::ssize(candidate);
  std::vector<double> differences;
  for (size_t i = 0; i < candidate.size(); ++i) {
    differences.push_back(static_cast<double>(candidate[i]) - static_cast<double>(base[i]));
    if (candidate[i] > base[i]) ++result.gained;
    if (candidate[i] < base[i]) ++result.lost;
  }
  result.difference = MeanOf(differences);
  result.p = ExactP(result.gained, result.lost);
  return result;
}

std::string Verdict(const PairedAnswers& answers) {
  const std::string numbers = fmt::format(
      "{} answers lost, {} gained of {} ({:+.1f} ± {:.1f} points)", answers.lost, answers.gained,
      answers.items, 100 * answers.difference.mean, 100 * 1.96 * answers.difference.se);
  const char* words = "no difference seen";
  if (answers.p < 0.05) words = answers.lost > answers.gained ? "worse" : "better";
  return fmt::format("{}, p = {:.2g}: {}", words, answers.p, numbers);
}

}  // namespace nibble
