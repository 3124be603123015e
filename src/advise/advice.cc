#include "advise/advice.h"

#include <algorithm>
#include <cmath>

namespace nibble {
namespace {

// Formats' errors stand in a ratio to the divergence that formats share to a factor of about
// e^0.5; the level is the model's and is not known before the first measurement.
constexpr ResidualPrior kQualityPrior = {.common = 4, .weights = 0.5, .kv = 0, .place = 0};
// How keys spread is the model's too, and the formats differ in how they bear it.
constexpr ResidualPrior kKvPrior = {.common = 4, .weights = 0, .kv = 0.8, .place = 0};
// Below this an error of the numbers is not what the divergence comes from.
constexpr double kLeastSquaredError = 1e-7;
// Two errors together cost up to this part of the smaller one more or less than their sum.
constexpr double kInterplay = 0.25;

double LogError(const GridFormat& format) {
  return std::log(std::max(format.squared_error, kLeastSquaredError));
}

// One axis of the grid: the divergence of each of its formats.
std::vector<Figure> FillAxis(const std::vector<GridFormat>& formats,
                             const std::vector<Figure>& measured, const ResidualPrior& prior,
                             bool by_kv) {
  Residuals residuals(prior);
  const auto place = [&](size_t i) {
    return by_kv ? GridPlace{0, static_cast<int>(i)} : GridPlace{static_cast<int>(i), 0};
  };
  bool any = false;
  for (size_t i = 0; i < formats.size(); ++i) {
    const Figure& figure = measured[i];
    // Exact formats say nothing of what errors cost.
    if (!figure.known() || figure.value <= 0 || formats[i].squared_error == 0) continue;
    any = true;
    residuals.Add(place(i), std::log(figure.value) - LogError(formats[i]),
                  figure.error / figure.value);
  }
  std::vector<Figure> filled = measured;
  for (size_t i = 0; any && i < formats.size(); ++i) {
    if (filled[i].known()) continue;
    const Residuals::Posterior at = residuals.At(place(i));
    const double value = std::exp(LogError(formats[i]) + at.mean);
    filled[i] = {.value = value, .error = value * at.error, .source = FigureSource::kPredicted};
  }
  return filled;
}

Figure MeasuredKld(const AdviceGrid& grid, GridPlace at) {
  const QualitySums* sums = grid.QualityOf(at);
  if (sums == nullptr) return {};
  const MeanError mean = sums->Divergence();
  return {.value = mean.mean, .error = mean.se, .source = FigureSource::kMeasured};
}

// What each cache costs beside f16: of the weights that show it with the smallest error.
std::vector<Figure> MeasuredKvCosts(const AdviceGrid& grid) {
  std::vector<Figure> costs(grid.kvs.size());
  costs[0] = {.value = 0, .error = 0, .source = FigureSource::kMeasured};
  for (int kv = 1; kv < static_cast<int>(grid.kvs.size()); ++kv) {
    Figure& best = costs[static_cast<size_t>(kv)];
    for (int w = 0; w < static_cast<int>(grid.weights.size()); ++w) {
      const auto [with, without] = grid.Common({w, kv}, {w, 0});
      if (with.windows == 0) continue;
      const MeanError a = with.Divergence();
      const MeanError b = without.Divergence();
      const double error = std::hypot(a.se, b.se);
      if (best.known() && best.error <= error) continue;
      best = {.value = std::max(a.mean - b.mean, 0.0),
              .error = error,
              .source = FigureSource::kMeasured};
    }
  }
  return costs;
}

struct QualityAxes {
  std::vector<Figure> weights;  // with an f16 cache
  std::vector<Figure> kvs;      // beside that
};

QualityAxes FillQuality(const AdviceGrid& grid) {
  std::vector<Figure> weights(grid.weights.size());
  for (size_t w = 0; w < weights.size(); ++w) {
    weights[w] = MeasuredKld(grid, {static_cast<int>(w), 0});
  }
  return {.weights = FillAxis(grid.weights, weights, kQualityPrior, false),
          .kvs = FillAxis(grid.kvs, MeasuredKvCosts(grid), kKvPrior, true)};
}

Figure KldOf(const AdviceGrid& grid, const QualityAxes& axes, GridPlace at) {
  if (grid.QualityOf(at) != nullptr) return MeasuredKld(grid, at);
  const Figure& weights = axes.weights[static_cast<size_t>(at.weights)];
  const Figure& kv = axes.kvs[static_cast<size_t>(at.kv)];
  if (!weights.known() || !kv.known()) return {};
  const double interplay = kInterplay * std::min(weights.value, kv.value);
  return {.value = weights.value + kv.value,
          .error = std::hypot(weights.error, kv.error, interplay),
          .source = FigureSource::kPredicted};
}

// A model's answers are as probable as it says, so that on text of its own the perplexity grows by
// the divergence's factor; on other text about so.
Figure PplOf(const AdviceGrid& grid, const Figure& kld, GridPlace at) {
  if (const QualitySums* sums = grid.QualityOf(at)) {
    const MeanError ppl = sums->Perplexity();
    return {.value = ppl.mean, .error = ppl.se, .source = FigureSource::kMeasured};
  }
  if (!kld.known() || grid.qualities.empty()) return {};
  const QualitySums* most = nullptr;
  for (const auto& [place, sums] : grid.qualities) {
    if (most == nullptr || sums.tokens > most->tokens) most = &sums;
  }
  const double value = most->BasePerplexity() * std::exp(kld.value);
  return {.value = value, .error = value * kld.error, .source = FigureSource::kPredicted};
}

// Corrects tpot and ttft of what was not measured.
struct SpeedCorrection {
  Residuals tpot;
  Residuals ttft;

  explicit SpeedCorrection(const AdviceGrid& grid)
      : tpot(grid.speed_prior), ttft(grid.speed_prior) {
    for (const auto& [at, speed] : grid.speeds) {
      const GridPlace place{at.first, at.second};
      const PlacePrior& prior = grid.PriorOf(place);
      tpot.Add(place, std::log(speed.tpot_s / prior.tpot_s), speed.tpot_error / speed.tpot_s);
      ttft.Add(place, std::log(speed.ttft_s / prior.ttft_s), speed.ttft_error / speed.ttft_s);
    }
  }
};

Figure Corrected(double predicted, const Residuals::Posterior& by) {
  const double value = predicted * std::exp(by.mean);
  return {.value = value, .error = value * by.error, .source = FigureSource::kPredicted};
}

// Planned without the file, a model's packed size is known to about this part.
constexpr double kMemoryError = 0.01;

}  // namespace

const char* FigureSourceName(FigureSource source) {
  switch (source) {
    case FigureSource::kNone:
      return "unknown";
    case FigureSource::kPredicted:
      return "predicted";
    case FigureSource::kMeasured:
      return "measured";
  }
  return "";
}

const QualitySums* AdviceGrid::QualityOf(GridPlace at) const {
  const auto found = qualities.find({at.weights, at.kv});
  return found == qualities.end() ? nullptr : &found->second;
}

void AdviceGrid::AddWindow(GridPlace at, const QualitySums& sums) {
  qualities[{at.weights, at.kv}] += sums;
  windows[{at.weights, at.kv}].push_back(sums);
}

std::pair<QualitySums, QualitySums> AdviceGrid::Common(GridPlace a, GridPlace b) const {
  std::pair<QualitySums, QualitySums> sums;
  const auto first = windows.find({a.weights, a.kv});
  const auto second = windows.find({b.weights, b.kv});
  if (first == windows.end() || second == windows.end()) return sums;
  const size_t both = std::min(first->second.size(), second->second.size());
  for (size_t i = 0; i < both; ++i) {
    sums.first += first->second[i];
    sums.second += second->second[i];
  }
  return sums;
}

const SpeedMeasurement* AdviceGrid::SpeedOf(GridPlace at) const {
  const auto found = speeds.find({at.weights, at.kv});
  return found == speeds.end() ? nullptr : &found->second;
}

bool AdviceGrid::Possible(GridPlace at) const {
  return weights[static_cast<size_t>(at.weights)].refused.empty() &&
         kvs[static_cast<size_t>(at.kv)].refused.empty() && PriorOf(at).fits;
}

std::vector<AdviceRow> EstimateRows(const AdviceGrid& grid) {
  const QualityAxes quality = FillQuality(grid);
  const SpeedCorrection correction(grid);
  std::vector<AdviceRow> rows;
  for (int w = 0; w < static_cast<int>(grid.weights.size()); ++w) {
    for (int kv = 0; kv < static_cast<int>(grid.kvs.size()); ++kv) {
      const GridPlace at{w, kv};
      if (!grid.Possible(at)) continue;
      const PlacePrior& prior = grid.PriorOf(at);
      AdviceRow row{.place = at,
                    .weights = grid.weights[static_cast<size_t>(w)].name,
                    .kv = grid.kvs[static_cast<size_t>(kv)].name,
                    .skip_layers = grid.kvs[static_cast<size_t>(kv)].skip_layers,
                    .batch = prior.batch,
                    .tpot_s = Corrected(prior.tpot_s, correction.tpot.At(at)),
                    .ttft_s = Corrected(prior.ttft_s, correction.ttft.At(at)),
                    .memory = {.value = prior.memory,
                               .error = prior.exact_memory ? 0 : prior.memory * kMemoryError,
                               .source = prior.exact_memory ? FigureSource::kMeasured
                                                            : FigureSource::kPredicted},
                    .kld = KldOf(grid, quality, at),
                    .ppl = {}};
      if (const SpeedMeasurement* speed = grid.SpeedOf(at)) {
        row.tpot_s = {speed->tpot_s, speed->tpot_error, FigureSource::kMeasured};
        row.ttft_s = {speed->ttft_s, speed->ttft_error, FigureSource::kMeasured};
      }
      row.ppl = PplOf(grid, row.kld, at);
      rows.push_back(std::move(row));
    }
  }
  MarkPareto(rows);
  return rows;
}

void MarkPareto(std::vector<AdviceRow>& rows) {
  for (AdviceRow& row : rows) {
    row.pareto = row.kld.known();
    for (const AdviceRow& other : rows) {
      if (!row.pareto || !other.kld.known()) continue;
      const bool no_worse =
          other.tok_s() >= row.tok_s() && other.ttft_s.value <= row.ttft_s.value &&
          other.memory.value <= row.memory.value && other.kld.value <= row.kld.value;
      const bool better = other.tok_s() > row.tok_s() || other.ttft_s.value < row.ttft_s.value ||
                          other.memory.value < row.memory.value || other.kld.value < row.kld.value;
      if (no_worse && better) row.pareto = false;
    }
  }
}

}  // namespace nibble
