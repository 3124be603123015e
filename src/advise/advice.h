#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "advise/quality_sums.h"
#include "advise/residuals.h"

namespace nibble {

enum class FigureSource : uint8_t { kNone, kPredicted, kMeasured };
const char* FigureSourceName(FigureSource source);  // "unknown", "predicted", "measured"

// A number of the table. error: one standard deviation in the number's own unit.
struct Figure {
  double value = std::numeric_limits<double>::quiet_NaN();
  double error = 0;
  FigureSource source = FigureSource::kNone;

  bool known() const { return source != FigureSource::kNone; }
  bool measured() const { return source == FigureSource::kMeasured; }
};

// A format of the weights or of the cache that the grid has a line for.
struct GridFormat {
  std::string name;                   // as --to or --kv takes it; "own": the model as it is
  double squared_error = 0;           // of its numbers, over their squares; 0: exact
  std::vector<int> skip_layers = {};  // of a cache: --kv-skip-layers
  std::string refused = {};           // why there can be no figures; empty: there can
};

// What the cost model says of a place, and how many sequences it is about.
struct PlacePrior {
  int batch = 1;              // the concurrency, or as many as the memory holds
  bool fits = true;           // even one sequence
  double tpot_s = 0;          // a step in which each of `batch` sequences gets a token
  double ttft_s = 0;          // a prompt of the whole context, alone
  double memory = 0;          // bytes
  bool exact_memory = false;  // planned from the very file
};

struct SpeedMeasurement {
  double tpot_s = 0, tpot_error = 0;
  double ttft_s = 0, ttft_error = 0;
};

// Everything that the table is made of.
struct AdviceGrid {
  std::vector<GridFormat> weights;              // [0]: the model as it is
  std::vector<GridFormat> kvs;                  // [0]: f16
  std::vector<std::vector<PlacePrior>> priors;  // [weights][kv]
  ResidualPrior speed_prior;
  bool measures_speed = true;  // false: another device's
  std::map<std::pair<int, int>, SpeedMeasurement> speeds;
  std::set<std::pair<int, int>> untimed;  // places that there is no memory to time
  std::map<std::pair<int, int>, QualitySums> qualities;
  // The same by windows, from the text's first on: caches are compared over windows that both saw.
  std::map<std::pair<int, int>, std::vector<QualitySums>> windows;

  const PlacePrior& PriorOf(GridPlace at) const {
    return priors[static_cast<size_t>(at.weights)][static_cast<size_t>(at.kv)];
  }
  PlacePrior& PriorOf(GridPlace at) {
    return priors[static_cast<size_t>(at.weights)][static_cast<size_t>(at.kv)];
  }
  const QualitySums* QualityOf(GridPlace at) const;
  // Of two places over the windows that both have seen; no windows: none.
  std::pair<QualitySums, QualitySums> Common(GridPlace a, GridPlace b) const;
  void AddWindow(GridPlace at, const QualitySums& sums);
  const SpeedMeasurement* SpeedOf(GridPlace at) const;
  bool Possible(GridPlace at) const;  // neither format is refused, and one sequence fits
};

struct AdviceRow {
  GridPlace place;
  std::string weights;
  std::string kv;
  std::vector<int> skip_layers;
  int batch = 1;
  Figure tpot_s;
  Figure ttft_s;
  Figure memory;
  Figure kld;  // nats a prediction
  Figure ppl;
  bool pareto = false;

  double tok_s() const { return batch / tpot_s.value; }
  double tok_s_error() const { return tok_s() * tpot_s.error / tpot_s.value; }
};

// A row for every possible place: what was measured, and for the rest
//   speed    the cost model, corrected by the residuals of what was measured
//   quality  kld(weights, kv) = kld(weights, f16) + kld(kv): small errors add. Each of the two,
//            where it was not measured, is in proportion to the squared error of its numbers (the
//            linearity that HIGGS measures, arXiv 2411.17525), by a factor learnt from those that
//            were.
// Rows are marked that no other row is better than in everything (MarkPareto).
std::vector<AdviceRow> EstimateRows(const AdviceGrid& grid);

// A row is in front when no other has at least its tokens a second, and no more time to the first
// token, memory and divergence, and is better in one of them. Rows without a divergence are not.
void MarkPareto(std::vector<AdviceRow>& rows);

enum class AdviceObjective : uint8_t { kSpeed, kMemory, kQuality };

struct AdviceLimits {
  AdviceObjective objective = AdviceObjective::kSpeed;
  double memory = std::numeric_limits<double>::infinity();  // bytes
  double quality_loss = std::numeric_limits<double>::infinity();
  int concurrency = 1;
};

// ln of what the objective wants more of, and its standard deviation.
struct RowScore {
  double value = 0;
  double error = 0;
};
RowScore ScoreOf(const AdviceRow& row, AdviceObjective objective);

// Whether a row may be within the limits, and whether it is so for sure: by two standard
// deviations.
bool MayBeWithin(const AdviceRow& row, const AdviceLimits& limits);
bool IsWithin(const AdviceRow& row, const AdviceLimits& limits);

// The row to take: within the limits, with room for everybody where any row has it, the best by
// the objective counting measured rows as they are and predicted ones two deviations worse; ties by
// less divergence, then less memory. None: no row is within.
std::optional<size_t> ChooseRow(const std::vector<AdviceRow>& rows, const AdviceLimits& limits);

// Three sentences: what was chosen and what it gives, what holds it there, and what the next best
// thing would be.
std::string ExplainChoice(const std::vector<AdviceRow>& rows, std::optional<size_t> choice,
                          const AdviceLimits& limits);

}  // namespace nibble
