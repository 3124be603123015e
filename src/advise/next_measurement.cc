#include "advise/next_measurement.h"

#include <algorithm>
#include <cmath>

namespace nibble {
namespace {

constexpr double kOptimism = 2;         // standard deviations
constexpr double kSettledError = 0.05;  // of a divergence: enough text
constexpr double kUnknownError = 4;     // of what nothing is known of yet, in logarithms
constexpr double kExactError = 0.2;     // and of the model as it is
constexpr double kLeastKld = 1e-6;

// How far the ln of a figure may be off.
double LogErrorOf(const Figure& figure) {
  if (!figure.known()) return kUnknownError;
  return figure.error / std::max(figure.value, kLeastKld);
}

// The objective's value of the best row that is within the limits for sure, seen pessimistically.
double SureValue(const MeasurementInput& input) {
  const std::optional<size_t> best = ChooseRow(input.rows, input.limits);
  if (!best) return -1e300;
  const RowScore score = ScoreOf(input.rows[*best], input.limits.objective);
  return score.value - kOptimism * score.error;
}

// Rows that could be taken after all.
bool Contends(const AdviceRow& row, const MeasurementInput& input, double sure) {
  if (!MayBeWithin(row, input.limits)) return false;
  if (input.limits.objective == AdviceObjective::kQuality && !row.kld.known()) return true;
  const RowScore score = ScoreOf(row, input.limits.objective);
  return score.value + kOptimism * score.error >= sure;
}

// The model as it is says nothing of what formats with errors cost, where there are any.
bool IsExact(const AdviceGrid& grid, int weights) {
  const auto has_error = [](const GridFormat& format) { return format.squared_error > 0; };
  return std::ranges::any_of(grid.weights, has_error) &&
         !has_error(grid.weights[static_cast<size_t>(weights)]);
}

// What a measurement would tell, before its cost; 0: nothing.
double QualityWorth(const AdviceRow& row, const MeasurementInput& input) {
  if (!row.kld.known() && IsExact(input.grid, row.place.weights)) return kExactError;
  if (!row.kld.measured()) return LogErrorOf(row.kld);
  const QualitySums* sums = input.grid.QualityOf(row.place);
  if (sums == nullptr || sums->windows >= input.windows) return 0;
  const double error = LogErrorOf(row.kld);
  const bool open = MayBeWithin(row, input.limits) && !IsWithin(row, input.limits);
  if (!open && error < kSettledError) return 0;
  return error / 4;  // a window more takes away a part of it only
}

double SpeedWorth(const AdviceRow& row, const MeasurementInput& input) {
  if (!input.grid.measures_speed || row.tpot_s.measured()) return 0;
  if (input.grid.qualities.empty()) return 0;  // which rows contend rests on a divergence
  if (input.grid.untimed.contains({row.place.weights, row.place.kv})) return 0;
  return LogErrorOf(row.tpot_s);
}

// The contender that looks best: what would be taken if predictions were right.
const AdviceRow* LeaderOf(const MeasurementInput& input, double sure) {
  const AdviceRow* leader = nullptr;
  for (const AdviceRow& row : input.rows) {
    if (!row.kld.known() || row.kld.value > input.limits.quality_loss) continue;
    if (!Contends(row, input, sure) || row.batch < input.limits.concurrency) continue;
    if (leader == nullptr || ScoreOf(row, input.limits.objective).value >
                                 ScoreOf(*leader, input.limits.objective).value) {
      leader = &row;
    }
  }
  return leader;
}

// The leader's figures are what the advice will be judged by; behind the contenders come the rows
// in front, then the others.
double Importance(const AdviceRow& row, const AdviceRow* leader, bool contends) {
  if (&row == leader) return 10;
  if (contends) return 1;
  return row.pareto ? 0.1 : 0.01;
}

}  // namespace

std::optional<GridMeasurement> NextMeasurement(const MeasurementInput& input) {
  const double sure = SureValue(input);
  const AdviceRow* leader = LeaderOf(input, sure);
  std::optional<GridMeasurement> best;
  double best_worth = 0;
  const auto consider = [&](GridPlace place, Measuring what, double worth) {
    if (worth <= 0) return;
    const double seconds = input.cost(place, what);
    if (seconds > input.seconds_left) return;
    const double rate = worth / std::max(seconds, 1e-3);
    if (best && rate <= best_worth) return;
    best_worth = rate;
    best = GridMeasurement{.place = place, .what = what, .seconds = seconds};
  };
  for (const AdviceRow& row : input.rows) {
    const double importance = Importance(row, leader, Contends(row, input, sure));
    GridPlace for_quality = row.place;
    double worth = QualityWorth(row, input);
    const GridPlace plain{row.place.weights, 0};
    if (worth > 0 && row.place.kv != 0 && input.grid.QualityOf(plain) == nullptr &&
        input.grid.Possible(plain)) {
      for_quality = plain;
    }
    consider(for_quality, Measuring::kQuality, worth * importance);
    consider(row.place, Measuring::kSpeed, SpeedWorth(row, input) * importance);
  }
  return best;
}

}  // namespace nibble
