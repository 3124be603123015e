#include "advise/residuals.h"

#include <gtest/gtest.h>

#include <cmath>

namespace nibble {
namespace {

constexpr ResidualPrior kPrior = {.common = 0.3, .weights = 0.2, .kv = 0.1, .place = 0.05};
constexpr double kAll = 0.09 + 0.04 + 0.01 + 0.0025;

TEST(Residuals, NothingMeasured) {
  const Residuals residuals(kPrior);
  const auto at = residuals.At({1, 2});
  EXPECT_EQ(at.mean, 0);
  EXPECT_NEAR(at.error, std::sqrt(kAll), 1e-15);
}

TEST(Residuals, OnePlace) {
  Residuals residuals(kPrior);
  residuals.Add({0, 0}, 0.5, 0.1);
  // k / (K + σ²), by what the places have in common.
  const double all = kAll + 0.01;
  const std::pair<GridPlace, double> cases[] = {
      {{0, 0}, kAll}, {{0, 1}, 0.13}, {{1, 0}, 0.10}, {{1, 1}, 0.09}};
  for (const auto& [place, shared] : cases) {
    const auto at = residuals.At(place);
    EXPECT_NEAR(at.mean, 0.5 * shared / all, 1e-14);
    EXPECT_NEAR(at.error, std::sqrt(kAll - shared * shared / all), 1e-14);
  }
}

// Two observations: the closed form of a matrix of two by two.
TEST(Residuals, TwoPlaces) {
  Residuals residuals(kPrior);
  residuals.Add({0, 0}, 0.4, 0.02);
  residuals.Add({0, 1}, -0.2, 0.05);
  const double a = kAll + 0.0004, b = 0.13, c = kAll + 0.0025, det = a * c - b * b;
  const double x = 0.10, y = 0.09;  // of {1, 0} with each
  const double mean = (x * (c * 0.4 - b * -0.2) + y * (a * -0.2 - b * 0.4)) / det;
  const double taken = (x * x * c - 2 * x * y * b + y * y * a) / det;
  const auto at = residuals.At({1, 0});
  EXPECT_NEAR(at.mean, mean, 1e-13);
  EXPECT_NEAR(at.error, std::sqrt(kAll - taken), 1e-13);
}

TEST(Residuals, SamePlaceManyTimes) {
  Residuals residuals(kPrior);
  for (int i = 0; i < 40; ++i) residuals.Add({3, 1}, 0.7, 0);
  const auto at = residuals.At({3, 1});
  EXPECT_NEAR(at.mean, 0.7, 1e-4);
  EXPECT_LT(at.error, 1e-3);
}

}  // namespace
}  // namespace nibble
