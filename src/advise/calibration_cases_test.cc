#include "advise/calibration_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "advise/rate_meters.h"
#include "advise/step_overheads.h"
#include "advise/validate.h"
#include "container/json.h"
#include "model/config/random_model.h"

namespace nibble {
namespace {

using namespace calibration_cases;

// Products with denormal numbers take some processors a hundred times as long as others.
TEST(CalibrationCases, WeightsThatAreTimedAreOrdinaryNumbers) {
  constexpr size_t kWeights = 256 * 64;
  for (const Format format :
       {Format::kF32, Format::kF16, Format::kBF16, Format::kF8E4M3, Format::kF8E5M2, Format::kQ4_0,
        Format::kQ6K, Format::kQ8_0, Format::kMxfp4, Format::kNvfp4}) {
    const FormatTraits& traits = TraitsOf(format);
    std::vector<float> values(kWeights);
    traits.decode(RandomBlocks(format, traits.RowBytes(kWeights)).data(), values.data(), kWeights);
    const auto ordinary = [](float value) {
      return value == 0 || (std::abs(value) > 1e-30F && std::abs(value) < 1e30F);
    };
    EXPECT_TRUE(std::ranges::all_of(values, ordinary)) << traits.name;
  }
}

TEST(CalibrationCases, NothingValidatedWasCalibrated) {
  std::set<int> batches(std::begin(kNearRows), std::end(kNearRows));
  for (const auto rows :
       {std::span<const int>(kFarRows), std::span<const int>(kQuickNearRows),
        std::span<const int>(kQuickFarRows), std::span<const int>(kSmallBatches)}) {
    batches.insert(rows.begin(), rows.end());
  }
  const std::set<int> contexts = {kShortContext, kLongContext, kFarContext};
  int deepest = 0;
  for (const ValidatedPoint& point : kValidatedPoints) {
    // One row has kernels of its own; its shapes are others.
    EXPECT_TRUE(point.batch == 1 || !batches.contains(point.batch)) << point.batch;
    EXPECT_TRUE(point.context == 0 || !contexts.contains(point.context)) << point.context;
    deepest = std::max(deepest, point.context);
  }
  EXPECT_GE(deepest, 8000 - 1);
  // Shapes: widths, feed-forwards and the pairs of heads of the small models, and the depth of the
  // measured matrices with their rows, are none of a validated model.
  std::set<std::pair<int64_t, int64_t>> small;
  for (const SmallModel& model : kSmallModels) {
    const auto document = JsonDocument::Parse(std::string(model.config));
    ASSERT_TRUE(document);
    small.insert(
        {*document->root().GetInt("hidden_size"), *document->root().GetInt("intermediate_size")});
  }
  for (const ValidatedModel& model : kValidatedModels) {
    const auto document = JsonDocument::Parse(*ShapeByName(model.shape));
    ASSERT_TRUE(document);
    const JsonValue root = document->root();
    EXPECT_FALSE(small.contains({*root.GetInt("hidden_size"), *root.GetInt("intermediate_size")}));
  }
}

TEST(LeastSquares, FindsPositiveFactors) {
  const std::vector<std::vector<double>> a = {{1, 0}, {1, 1}, {1, 2}, {1, 5}};
  const auto exact = LeastSquaresPositive(a, std::vector<double>{3, 5, 7, 13});
  EXPECT_NEAR(exact[0], 3, 1e-9);
  EXPECT_NEAR(exact[1], 2, 1e-9);
  // The best line falls: the best one that does not is level.
  const auto level = LeastSquaresPositive(a, std::vector<double>{9, 7, 5, 3});
  EXPECT_NEAR(level[0], 6, 1e-9);
  EXPECT_EQ(level[1], 0);
}

TEST(ValidationSummary, CountsAbsoluteResiduals) {
  std::vector<ValidationRow> rows;
  for (const double predicted : {1.1, 0.9, 1.0, 1.3, 0.95}) {
    rows.push_back({.measured_s = 1, .predicted_s = predicted});
  }
  const ValidationErrors errors = Summarise(rows);
  EXPECT_NEAR(errors.median, 0.1, 1e-12);
  EXPECT_NEAR(errors.p90, 0.3, 1e-12);
  EXPECT_EQ(Summarise({}).median, 0);
}

}  // namespace
}  // namespace nibble
