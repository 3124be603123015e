#include "advise/advice.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "advise/advice_report.h"
#include "advise/next_measurement.h"
#include "advise/place_priors.h"

namespace nibble {
namespace {

// Sums whose divergence has this mean and standard error, over 1,000 predictions.
QualitySums Sums(double mean, double error) {
  constexpr double kN = 1000;
  QualitySums sums;
  sums.windows = 1;
  sums.tokens = 1000;
  sums.divergence = mean * kN;
  sums.divergence_squared = kN * (mean * mean + error * error * (kN - 1));
  sums.loss = 3 * kN;
  sums.loss_squared = 10 * kN;
  sums.base_loss = 2.9 * kN;
  return sums;
}

// own, q8, q4, q2 × f16, int8, int4; faster and smaller to the right and downwards.
AdviceGrid Grid() {
  AdviceGrid grid;
  grid.weights = {{.name = "own"},
                  {.name = "q8_0", .squared_error = 1e-5},
                  {.name = "q4_k_m", .squared_error = 3e-3},
                  {.name = "q2_k", .squared_error = 5e-2}};
  grid.kvs = {{.name = "f16"},
              {.name = "int8", .squared_error = 2e-5},
              {.name = "int4", .squared_error = 1e-2}};
  grid.speed_prior = {.common = 0.2, .weights = 0.1, .kv = 0.1, .place = 0.05};
  const double bytes[] = {16, 8.5, 4.8, 2.8};
  const double pages[] = {6, 3, 1.5};
  for (const double w : bytes) {
    grid.priors.emplace_back();
    for (const double kv : pages) {
      grid.priors.back().push_back(
          {.batch = 8, .tpot_s = 1e-3 * (w + kv), .ttft_s = 1e-2 * w, .memory = 1e7 * (w + kv)});
    }
  }
  return grid;
}

const AdviceRow& RowOf(const std::vector<AdviceRow>& rows, GridPlace at) {
  return *std::ranges::find(rows, at, &AdviceRow::place);
}

TEST(EstimateRows, NothingIsMeasured) {
  const AdviceGrid grid = Grid();
  const auto rows = EstimateRows(grid);
  ASSERT_EQ(rows.size(), 12U);
  for (const AdviceRow& row : rows) {
    EXPECT_EQ(row.tpot_s.source, FigureSource::kPredicted);
    EXPECT_EQ(row.tpot_s.value, grid.PriorOf(row.place).tpot_s);
    EXPECT_NEAR(row.tpot_s.error / row.tpot_s.value, std::sqrt(0.04 + 0.02 + 0.0025), 1e-12);
    EXPECT_EQ(row.kld.source, FigureSource::kNone);
    EXPECT_FALSE(row.pareto);
  }
}

TEST(EstimateRows, MeasuredFiguresAreTheirOwnAndCorrectOthers) {
  AdviceGrid grid = Grid();
  grid.speeds[{2, 0}] = {.tpot_s = 2 * grid.PriorOf({2, 0}).tpot_s,
                         .tpot_error = 1e-4,
                         .ttft_s = grid.PriorOf({2, 0}).ttft_s,
                         .ttft_error = 1e-4};
  const auto rows = EstimateRows(grid);
  EXPECT_EQ(RowOf(rows, {2, 0}).tpot_s.value, grid.speeds.at({2, 0}).tpot_s);
  EXPECT_TRUE(RowOf(rows, {2, 0}).tpot_s.measured());
  const auto factor = [&](GridPlace at) {
    return RowOf(rows, at).tpot_s.value / grid.PriorOf(at).tpot_s;
  };
  // The more a place shares with the measured one, the more it is corrected.
  EXPECT_GT(factor({2, 1}), factor({3, 1}));
  EXPECT_GT(factor({3, 0}), factor({3, 1}));
  EXPECT_GT(factor({3, 1}), 1.4);
  EXPECT_LT(factor({2, 1}), 2);
  EXPECT_LT(RowOf(rows, {2, 1}).tpot_s.error / RowOf(rows, {2, 1}).tpot_s.value, 0.16);
}

TEST(EstimateRows, DivergenceIsInProportionToSquaredErrors) {
  AdviceGrid grid = Grid();
  grid.AddWindow({2, 0}, Sums(0.03, 0.001));  // 10 times its squared error
  const auto rows = EstimateRows(grid);
  EXPECT_NEAR(RowOf(rows, {2, 0}).kld.value, 0.03, 1e-12);
  EXPECT_NEAR(RowOf(rows, {2, 0}).kld.error, 0.001, 1e-12);
  EXPECT_NEAR(RowOf(rows, {3, 0}).kld.value, 0.5, 0.02);
  EXPECT_NEAR(RowOf(rows, {1, 0}).kld.value, 1e-4, 1e-5);
  EXPECT_GT(RowOf(rows, {3, 0}).kld.error, 0.3);
  // Nothing is known of any other cache.
  EXPECT_EQ(RowOf(rows, {2, 1}).kld.source, FigureSource::kNone);
}

TEST(EstimateRows, SmallErrorsAdd) {
  AdviceGrid grid = Grid();
  grid.AddWindow({2, 0}, Sums(0.03, 0.001));
  grid.AddWindow({2, 2}, Sums(0.05, 0.001));
  const auto rows = EstimateRows(grid);
  const double q2 = RowOf(rows, {3, 0}).kld.value;
  EXPECT_NEAR(RowOf(rows, {3, 2}).kld.value, q2 + 0.02, 1e-9);
  EXPECT_EQ(RowOf(rows, {3, 2}).kld.source, FigureSource::kPredicted);
  EXPECT_NEAR(RowOf(rows, {2, 1}).kld.value, 0.03 + 0.02 * 2e-5 / 1e-2, 1e-4);
  EXPECT_NEAR(RowOf(rows, {2, 2}).ppl.value, std::exp(3.0), 1e-9);
}

TEST(EstimateRows, RefusedFormatsAndPlacesWithoutRoomAreLeftOut) {
  AdviceGrid grid = Grid();
  grid.weights[1].refused = "cannot be made";
  grid.PriorOf({0, 0}).fits = false;
  const auto rows = EstimateRows(grid);
  EXPECT_EQ(rows.size(), 8U);
}

// The definition, on random rows.
TEST(MarkPareto, NoRowInFrontIsBeaten) {
  std::mt19937 random(1);
  std::uniform_int_distribution<int> few(1, 6);
  for (int round = 0; round < 200; ++round) {
    std::vector<AdviceRow> rows(12);
    for (AdviceRow& row : rows) {
      for (Figure* figure : {&row.tpot_s, &row.ttft_s, &row.memory, &row.kld}) {
        *figure = {.value = 0.1 * few(random), .error = 0, .source = FigureSource::kMeasured};
      }
      if (few(random) == 1) row.kld = {};
    }
    MarkPareto(rows);
    for (const AdviceRow& row : rows) {
      const auto beats = [&](const AdviceRow& other) {
        const double a[] = {other.tpot_s.value, other.ttft_s.value, other.memory.value,
                            other.kld.value};
        const double b[] = {row.tpot_s.value, row.ttft_s.value, row.memory.value, row.kld.value};
        bool better = false;
        for (int i = 0; i < 4; ++i) {
          if (!(a[i] <= b[i])) return false;
          better = better || a[i] < b[i];
        }
        return better;
      };
      EXPECT_EQ(row.pareto, row.kld.known() && std::ranges::none_of(rows, beats));
    }
  }
}

AdviceGrid MeasuredGrid() {
  AdviceGrid grid = Grid();
  const double weights[] = {0.0001, 0.001, 0.03, 0.6};
  const double kvs[] = {0, 0.0005, 0.02};
  for (int w = 0; w < 4; ++w) {
    for (int kv = 0; kv < 3; ++kv) {
      const double kld = weights[w] + kvs[kv];
      grid.AddWindow({w, kv}, Sums(kld, kld / 50));
      const PlacePrior& prior = grid.PriorOf({w, kv});
      grid.speeds[{w, kv}] = {.tpot_s = prior.tpot_s,
                              .tpot_error = prior.tpot_s / 50,
                              .ttft_s = prior.ttft_s,
                              .ttft_error = prior.ttft_s / 50};
      grid.PriorOf({w, kv}).exact_memory = true;
    }
  }
  return grid;
}

TEST(ChooseRow, ByObjectiveWithinTheLimits) {
  const auto rows = EstimateRows(MeasuredGrid());
  AdviceLimits limits{.quality_loss = 0.1, .concurrency = 8};
  EXPECT_EQ(rows[*ChooseRow(rows, limits)].place, (GridPlace{2, 2}));
  limits.quality_loss = 0.04;
  EXPECT_EQ(rows[*ChooseRow(rows, limits)].place, (GridPlace{2, 1}));
  limits.quality_loss = 0.03;  // two errors of 0.0006 are too near
  EXPECT_EQ(rows[*ChooseRow(rows, limits)].place, (GridPlace{1, 2}));
  limits.objective = AdviceObjective::kQuality;
  EXPECT_EQ(rows[*ChooseRow(rows, limits)].place, (GridPlace{0, 0}));
  limits.memory = 1.7e8;
  EXPECT_EQ(rows[*ChooseRow(rows, limits)].place, (GridPlace{1, 0}));
  limits.objective = AdviceObjective::kMemory;
  limits.quality_loss = 1;
  EXPECT_EQ(rows[*ChooseRow(rows, limits)].place, (GridPlace{3, 2}));
  limits.quality_loss = 1e-6;
  EXPECT_FALSE(ChooseRow(rows, limits));
}

TEST(ChooseRow, RoomForEverybodyGoesFirst) {
  AdviceGrid grid = MeasuredGrid();
  grid.PriorOf({2, 2}).batch = 7;
  grid.speeds[{2, 2}].tpot_s /= 10;
  const auto rows = EstimateRows(grid);
  const AdviceLimits limits{.quality_loss = 0.1, .concurrency = 8};
  EXPECT_EQ(rows[*ChooseRow(rows, limits)].place, (GridPlace{2, 1}));
}

TEST(ExplainChoice, ThreeSentencesThatNameWhatWasChosen) {
  const auto rows = EstimateRows(MeasuredGrid());
  const AdviceLimits limits{.memory = 1e9, .quality_loss = 0.04, .concurrency = 8};
  const auto choice = ChooseRow(rows, limits);
  const std::string text = ExplainChoice(rows, choice, limits);
  EXPECT_TRUE(text.starts_with("q4_k_m weights with an int8 cache give the most tokens a second"))
      << text;
  EXPECT_NE(text.find("measured"), text.npos);
  EXPECT_NE(text.find("are allowed"), text.npos) << text;
  size_t sentences = 0;
  for (size_t at = text.find(". "); at != text.npos; at = text.find(". ", at + 1)) ++sentences;
  EXPECT_EQ(sentences + 1, 3U) << text;
  EXPECT_TRUE(ExplainChoice(rows, std::nullopt, limits).starts_with("No combination"));
}

struct Counted {
  std::vector<GridMeasurement> done;
  AdviceGrid grid;
};

// Measures what NextMeasurement asks for, as MeasuredGrid has it, until it wants nothing more.
Counted RunAll(const AdviceLimits& limits, double seconds) {
  const AdviceGrid truth = MeasuredGrid();
  Counted run{.done = {}, .grid = Grid()};
  while (true) {
    const auto rows = EstimateRows(run.grid);
    const auto next = NextMeasurement({.grid = run.grid,
                                       .rows = rows,
                                       .limits = limits,
                                       .cost = [](GridPlace, Measuring) { return 1.0; },
                                       .windows = 4,
                                       .seconds_left = seconds});
    if (!next) return run;
    seconds -= 1;
    run.done.push_back(*next);
    const std::pair<int, int> at{next->place.weights, next->place.kv};
    if (next->what == Measuring::kSpeed) {
      run.grid.speeds[at] = truth.speeds.at(at);
    } else {
      run.grid.AddWindow(next->place, truth.qualities.at(at));
    }
    if (run.done.size() > 200) {
      ADD_FAILURE() << "no end";
      return run;
    }
  }
}

TEST(NextMeasurement, EndsWithEverythingMeasured) {
  const Counted run = RunAll({.quality_loss = 0.1, .concurrency = 8}, 1e9);
  EXPECT_EQ(run.grid.speeds.size(), 12U);
  EXPECT_EQ(run.grid.qualities.size(), 12U);
  // Errors of a fiftieth are small enough: no window more but where the limit is near.
  EXPECT_LT(run.done.size(), 36U);
}

TEST(NextMeasurement, NothingThatDoesNotFitTheTime) {
  EXPECT_EQ(RunAll({.quality_loss = 0.1, .concurrency = 8}, 7.5).done.size(), 7U);
  EXPECT_TRUE(RunAll({.quality_loss = 0.1, .concurrency = 8}, 0.5).done.empty());
}

TEST(NextMeasurement, WeightsWithAPlainCacheGoFirst) {
  const Counted run = RunAll({.quality_loss = 0.1, .concurrency = 8}, 1e9);
  std::vector<int> plain;
  for (const GridMeasurement& one : run.done) {
    if (one.what != Measuring::kQuality) continue;
    if (one.place.kv == 0) plain.push_back(one.place.weights);
    EXPECT_NE(std::ranges::find(plain, one.place.weights), plain.end());
  }
}

// A few measurements find what all of them would.
TEST(NextMeasurement, ContendersGoFirst) {
  const AdviceLimits limits{.quality_loss = 0.1, .concurrency = 8};
  const Counted run = RunAll(limits, 10);
  const auto rows = EstimateRows(run.grid);
  const auto choice = ChooseRow(rows, limits);
  ASSERT_TRUE(choice);
  EXPECT_EQ(rows[*choice].place, (GridPlace{2, 2}));
  EXPECT_TRUE(rows[*choice].kld.measured());
  EXPECT_TRUE(rows[*choice].tpot_s.measured());
}

TEST(LargestBatch, BySearch) {
  for (int most = 1; most <= 40; ++most) {
    for (int fitting = 0; fitting <= 41; ++fitting) {
      const int found = LargestBatch(most, fitting, [](int batch) { return batch; });
      EXPECT_EQ(found, std::min(most, fitting));
    }
  }
}

TEST(AdviceTable, MarksWhatIsPredicted) {
  AdviceReport report;
  report.limits = {.quality_loss = 0.1, .concurrency = 8};
  report.rows = EstimateRows(MeasuredGrid());
  report.choice = ChooseRow(report.rows, report.limits);
  const std::string measured = AdviceTable(report);
  EXPECT_EQ(measured.find('~'), measured.npos);
  EXPECT_NE(measured.find("> q4_k_m"), measured.npos) << measured;
  report.rows = EstimateRows(Grid());
  report.choice.reset();
  const std::string predicted = AdviceTable(report);
  EXPECT_NE(predicted.find('~'), predicted.npos);
  EXPECT_NE(predicted.find("–"), predicted.npos);  // no divergence yet
  const std::string page = AdviceHtml(report);
  EXPECT_NE(page.find("class=\"predicted\""), page.npos);
  EXPECT_NE(page.find("class=\"unknown\""), page.npos);
}

}  // namespace
}  // namespace nibble
