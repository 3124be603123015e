#include "cost/capacity.h"

#include <utility>

namespace nibble {

bool Holds(const SimulationResult& result, const LatencyLimits& limits) {
  const ServingReport& report = result.report;
  return report.rejected == result.never_fit &&
         (limits.ttft_s <= 0 || report.ttft_s.p99 <= limits.ttft_s) &&
         (limits.tpot_s <= 0 || report.tpot_s.p99 <= limits.tpot_s);
}

Result<Capacity> FindCapacity(const std::function<Result<SimulationResult>(double rate)>& simulate,
                              const LatencyLimits& limits, double start) {
  constexpr double kPrecision = 1.01;
  constexpr double kLeast = 1e-6, kMost = 1e6;
  Capacity capacity;
  const auto holds = [&](double rate) -> Result<bool> {
    NIBBLE_TRY(SimulationResult result, simulate(rate));
    const bool kept = Holds(result, limits);
    capacity.trials.push_back({.rate = rate, .holds = kept, .result = std::move(result)});
    return kept;
  };
  double low = 0, high = 0;  // low holds, high does not
  for (double rate = start; rate >= kLeast && rate <= kMost;) {
    NIBBLE_TRY(const bool kept, holds(rate));
    (kept ? low : high) = rate;
    if (low > 0 && high > 0) break;
    rate = kept ? rate * 2 : rate / 2;
  }
  while (low > 0 && high > low * kPrecision) {
    const double middle = (low + high) / 2;
    NIBBLE_TRY(const bool kept, holds(middle));
    (kept ? low : high) = middle;
  }
  capacity.rate = low;
  capacity.bounded = high > 0;
  return capacity;
}

}  // namespace nibble
