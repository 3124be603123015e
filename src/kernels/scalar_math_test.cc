#include "kernels/scalar_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

namespace nibble {
namespace {

constexpr double kBound = 0x1p-50;
constexpr double kInf = std::numeric_limits<double>::infinity();

void ExpectClose(double got, long double want, double x) {
  const long double error = std::fabs(static_cast<long double>(got) - want);
  EXPECT_LE(error, kBound * std::fabs(want)) << "at " << x << ": " << got;
}

TEST(ScalarMath, Exp) {
  for (double x = -708.3; x < 709.7; x += 0.0371) ExpectClose(Exp(x), std::exp((long double)x), x);
  for (double x = 1e-300; x < 1; x *= 1.7) {
    ExpectClose(Exp(x), std::exp((long double)x), x);
    ExpectClose(Exp(-x), std::exp(-(long double)x), -x);
  }
  EXPECT_EQ(Exp(0), 1);
  EXPECT_EQ(Exp(-kInf), 0);
  EXPECT_EQ(Exp(-1000), 0);
  EXPECT_EQ(Exp(1000), kInf);
  EXPECT_TRUE(std::isnan(Exp(std::nan(""))));
}

TEST(ScalarMath, Log) {
  for (double x = 1e-320; x < 1e308; x *= 1.0137) ExpectClose(Log(x), std::log((long double)x), x);
  for (double d = 1e-16; d < 0.5; d *= 1.1) {
    ExpectClose(Log(1 + d), std::log((long double)(1 + d)), 1 + d);
    ExpectClose(Log(1 - d), std::log((long double)(1 - d)), 1 - d);
  }
  EXPECT_EQ(Log(1), 0);
  EXPECT_EQ(Log(0), -kInf);
  EXPECT_EQ(Log(kInf), kInf);
  EXPECT_TRUE(std::isnan(Log(-1)));
}

TEST(ScalarMath, SinAndCos) {
  for (double x = 1e-9; x < 1.07e9; x *= 1.00371) {
    for (double y : {x, -x}) {
      ExpectClose(Sin(y), std::sin((long double)y), y);
      ExpectClose(Cos(y), std::cos((long double)y), y);
    }
  }
  // Around multiples of π/2, where the reduction cancels.
  for (int n = 1; n < 1 << 20; n = n * 3 + 1) {
    const double x = n * (std::numbers::pi / 2);
    ExpectClose(Sin(x), std::sin((long double)x), x);
    ExpectClose(Cos(x), std::cos((long double)x), x);
  }
  EXPECT_EQ(Sin(0), 0);
  EXPECT_EQ(Cos(0), 1);
  EXPECT_TRUE(std::isnan(Sin(kInf)));
  EXPECT_TRUE(std::isnan(Cos(0x1p31)));
}

TEST(ScalarMath, Pow) {
  for (double x : {1e-5, 0.3, 0.9999, 1.0001, 2.0, 10000.0, 1e6, 5e5}) {
    for (double y = -50; y < 50; y += 0.317) {
      ExpectClose(Pow(x, y), std::pow((long double)x, (long double)y), x);
    }
  }
  EXPECT_EQ(Pow(7, 0), 1);
  EXPECT_EQ(Pow(2, 2000), kInf);
  EXPECT_EQ(Pow(2, -2000), 0);
}

TEST(ScalarMath, Tanh) {
  for (double x = 1e-300; x < 30; x *= 1.013) {
    ExpectClose(Tanh(x), std::tanh((long double)x), x);
    ExpectClose(Tanh(-x), std::tanh(-(long double)x), -x);
  }
  EXPECT_EQ(Tanh(kInf), 1);
  EXPECT_EQ(Tanh(-kInf), -1);
}

}  // namespace
}  // namespace nibble
