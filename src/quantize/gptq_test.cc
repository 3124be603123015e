#include "quantize/gptq.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "platform/thread_pool.h"
#include "quantize/method_golden_test.h"
#include "quantize/rtn.h"

namespace nibble {
namespace {

using testing::MethodGolden;
using testing::RelativeDifference;

Hessian HessianOf(MatrixView<const float> x, ThreadPool& pool) {
  Hessian hessian(x.cols);
  hessian.Add(x, pool);
  return hessian;
}

TEST(Hessian, IsTheMeanOfProducts) {
  const MethodGolden golden("gptq");
  ThreadPool pool(3);
  const auto x = golden.Matrix("x");
  const Hessian hessian = HessianOf(x, pool);
  std::vector<double> all;
  for (int r = 0; r < x.cols; ++r) {
    for (int c = 0; c < x.cols; ++c) all.push_back(hessian.At(r, c));
  }
  EXPECT_LT(RelativeDifference(all, golden["hessian"]), 1e-6);  // 400 · 2^-24 at worst
}

TEST(Hessian, TheSameBitsForAnyNumberOfThreadsAndCalls) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  constexpr int kTokens = 700;
  constexpr int kCols = 83;
  std::vector<float> x(size_t{kTokens} * kCols);
  for (float& value : x) value = normal(random);
  ThreadPool one(1);
  ThreadPool three(3);
  const Hessian at_once = HessianOf(DenseView<const float>(x.data(), kTokens, kCols), one);
  Hessian in_parts(kCols);
  in_parts.Add(DenseView<const float>(x.data(), 512, kCols), three);
  in_parts.Add(DenseView<const float>(x.data() + 512 * kCols, kTokens - 512, kCols), three);
  EXPECT_EQ(in_parts.tokens(), kTokens);
  for (int r = 0; r < kCols; ++r) {
    for (int c = 0; c < kCols; ++c) ASSERT_EQ(at_once.At(r, c), in_parts.At(r, c));
  }
}

// H⁻¹ = Uᵀ U: then U H Uᵀ = 1, with H damped and in the factor's order.
TEST(HessianFactor, IsOneOfTheInverse) {
  const MethodGolden golden("gptq");
  ThreadPool pool(1);
  const Hessian hessian = HessianOf(golden.Matrix("x"), pool);
  const auto factor = FactorHessian(hessian, {.damping = 0.01, .act_order = true}, pool);
  ASSERT_TRUE(factor.has_value());
  EXPECT_EQ(factor->raised, 0);
  EXPECT_EQ(factor->dead_count, 2);
  EXPECT_TRUE(factor->dead[7] && factor->dead[100]);
  const int n = factor->cols;
  std::vector<double> h(static_cast<size_t>(n) * static_cast<size_t>(n));
  const auto at = [&](int i, int j) -> double& {
    return h[static_cast<size_t>(i) * static_cast<size_t>(n) + static_cast<size_t>(j)];
  };
  double mean = 0;
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < n; ++j) {
      const int row = factor->order[static_cast<size_t>(i)];
      at(i, j) = hessian.At(row, factor->order[static_cast<size_t>(j)]);
      if (i == j && factor->dead[static_cast<size_t>(row)]) at(i, i) = 1;
    }
    mean += at(i, i) / n;
    if (i > 0) {
      EXPECT_LE(at(i, i), at(i - 1, i - 1)) << i;
    }
  }
  for (int i = 0; i < n; ++i) at(i, i) += 0.01 * mean;
  double worst = 0;
  std::vector<double> uh(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < n; ++j) {
      uh[static_cast<size_t>(j)] = 0;
      for (int k = i; k < n; ++k)
        uh[static_cast<size_t>(j)] += double{factor->row(i)[k]} * at(k, j);
    }
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int k = j; k < n; ++k) sum += uh[static_cast<size_t>(k)] * double{factor->row(j)[k]};
      worst = std::max(worst, std::fabs(sum - (i == j ? 1 : 0)));
    }
  }
  EXPECT_LT(worst, 1e-4);  // U is stored as floats; the condition of H is some hundreds
}

// Sizes of one block, of whole blocks, and of blocks with a rest.
TEST(HessianFactor, SameBitsForAnyNumberOfThreads) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (const int cols : {5, 64, 192, 300}) {
    std::vector<float> x(size_t{400} * static_cast<size_t>(cols));
    for (float& value : x) value = normal(random);
    ThreadPool one(1);
    ThreadPool three(3);
    const Hessian hessian = HessianOf(DenseView<const float>(x.data(), 400, cols), one);
    const auto expected = FactorHessian(hessian, {}, one);
    const auto found = FactorHessian(hessian, {}, three);
    ASSERT_TRUE(expected.has_value() && found.has_value());
    EXPECT_TRUE(expected->upper == found->upper) << cols;
  }
}

TEST(HessianFactor, RaisesTheDampingAndSaysSo) {
  ThreadPool pool(1);
  // Indefinite: eigenvalues 1 ± 1.05.
  const std::vector<double> matrix = {1, 1.05, 1.05, 1};
  const Hessian hessian = Hessian::FromMatrix(2, matrix);
  const auto factor = FactorHessian(hessian, {.damping = 0.01}, pool);
  ASSERT_TRUE(factor.has_value());
  EXPECT_EQ(factor->raised, 3);  // 0.02, 0.04, 0.08
  EXPECT_DOUBLE_EQ(factor->damping, 0.08);

  const std::vector<double> hopeless = {1, 3, 3, 1};
  const auto none = FactorHessian(Hessian::FromMatrix(2, hopeless), {.damping = 0.01}, pool);
  ASSERT_FALSE(none.has_value());
  EXPECT_NE(none.error().message.find("not positive definite"), std::string::npos);
}

TEST(HessianFactor, RefusesInputsThatAreNoNumbers) {
  ThreadPool pool(1);
  EXPECT_FALSE(FactorHessian(Hessian(4), {}, pool).has_value());  // none at all
  std::vector<float> x(40, 1.0f);
  x[6] = std::numeric_limits<float>::infinity();
  const auto factor =
      FactorHessian(HessianOf(DenseView<const float>(x.data(), 10, 4), pool), {}, pool);
  ASSERT_FALSE(factor.has_value());
  EXPECT_NE(factor.error().message.find("column 2"), std::string::npos) << factor.error().message;
  EXPECT_FALSE(FactorHessian(Hessian(4), {.damping = -1}, pool).has_value());
}

struct GoldenCase {
  GptqOptions options;
  bool act_order;
};
GoldenCase CaseOf(const MethodGolden& golden, const std::string& name) {
  const std::vector<float>& spec = golden[name + ".spec"];  // bits, group, symmetric, order, static
  GoldenCase result = {.options = {}, .act_order = spec[3] != 0};
  result.options.grid = {.bits = static_cast<int>(spec[0]),
                         .granularity = spec[1] != 0 ? Granularity::kGroup : Granularity::kChannel,
                         .group = static_cast<int>(spec[1]),
                         .symmetric = spec[2] != 0,
                         .scale_type = ScaleType::kF32};
  result.options.static_groups = spec[4] != 0;
  return result;
}

TEST(Gptq, IsThePublishedAlgorithm) {
  const MethodGolden golden("gptq");
  ThreadPool pool(2);
  const auto w = golden.Matrix("w");
  const Hessian hessian = HessianOf(golden.Matrix("x"), pool);
  const auto names = golden.NamesBefore(".codes");
  ASSERT_EQ(names.size(), 7u);
  for (const std::string& name : names) {
    const GoldenCase one = CaseOf(golden, name);
    const auto factor = FactorHessian(hessian, {.damping = 0.01, .act_order = one.act_order}, pool);
    ASSERT_TRUE(factor.has_value());
    const auto found = QuantizeGptq(w, *factor, one.options, pool);
    ASSERT_TRUE(found.has_value()) << name << ": " << found.error().message;
    const GroupedMatrix& matrix = found->matrix;
    EXPECT_EQ(std::vector<float>(matrix.codes.begin(), matrix.codes.end()), golden[name + ".codes"])
        << name;
    EXPECT_LT(RelativeDifference(matrix.scales, golden[name + ".scales"]), 3e-6) << name;
    EXPECT_EQ(RelativeDifference(matrix.zeros, golden[name + ".zeros"]), 0) << name;
    EXPECT_LT(RelativeDifference(found->column_losses, golden[name + ".losses"]), 1e-4) << name;
    const bool scattered = one.act_order && !one.options.static_groups && matrix.groups() > 1;
    ASSERT_EQ(!matrix.group_of.empty(), scattered) << name;
    if (scattered) {
      EXPECT_EQ(RelativeDifference(matrix.group_of, golden[name + ".group_of"]), 0) << name;
    }
  }
}

// tr((W − Q) H (W − Q)ᵀ) / 2: what the method is to lower.
double OutputError(MatrixView<const float> w, const GroupedMatrix& matrix, const Hessian& hessian,
                   ThreadPool& pool) {
  std::vector<float> values(matrix.codes.size());
  Dequantize(matrix, DenseView(values.data(), matrix.rows, matrix.cols), pool);
  double error = 0;
  for (int r = 0; r < w.rows; ++r) {
    const float* row = values.data() + static_cast<ptrdiff_t>(r) * w.cols;
    for (int i = 0; i < w.cols; ++i) {
      for (int j = 0; j < w.cols; ++j) {
        error += double{w.row(r)[i] - row[i]} * hessian.At(i, j) * double{w.row(r)[j] - row[j]} / 2;
      }
    }
  }
  return error;
}

TEST(Gptq, LosesLessThanRoundingAndItsLossesSayWhat) {
  const MethodGolden golden("gptq");
  ThreadPool pool(2);
  const auto w = golden.Matrix("w");
  const Hessian hessian = HessianOf(golden.Matrix("x"), pool);
  const GridSpec grid = {.bits = 4, .group = 32};
  const auto rounded = QuantizeRtn(w, grid, pool);
  const double plain = OutputError(w, *rounded, hessian, pool);
  double last = plain;
  for (const bool order : {false, true}) {
    const auto factor = FactorHessian(hessian, {.damping = 1e-6, .act_order = order}, pool);
    const auto found = QuantizeGptq(w, *factor, {.grid = grid}, pool);
    const double error = OutputError(w, found->matrix, hessian, pool);
    EXPECT_LT(error, 0.6 * plain) << order;
    // Without damping the losses are the error at the output, exactly.
    EXPECT_NEAR(found->loss, error, 1e-3 * error);
    last = error;
  }
  EXPECT_GT(last, 0);
}

TEST(Gptq, TheSameBitsForAnyNumberOfThreads) {
  const MethodGolden golden("gptq");
  ThreadPool one(1);
  ThreadPool three(3);
  const Hessian hessian = HessianOf(golden.Matrix("x"), one);
  const auto factor = FactorHessian(hessian, {.act_order = true}, one);
  const GptqOptions options = {.grid = {.bits = 3, .group = 32, .symmetric = false}};
  const auto a = QuantizeGptq(golden.Matrix("w"), *factor, options, one);
  const auto b = QuantizeGptq(golden.Matrix("w"), *factor, options, three);
  EXPECT_EQ(a->matrix.codes, b->matrix.codes);
  EXPECT_EQ(a->matrix.scales, b->matrix.scales);
  EXPECT_EQ(a->column_losses, b->column_losses);
}

// Only rounding may come from how many columns wait for a block's errors; near ties it moves codes.
TEST(Gptq, BlocksAreOnlyForSpeed) {
  const MethodGolden golden("gptq");
  ThreadPool pool(1);
  const Hessian hessian = HessianOf(golden.Matrix("x"), pool);
  const auto factor = FactorHessian(hessian, {}, pool);
  const auto run = [&](int block) {
    const GptqOptions options = {.grid = {.bits = 4, .group = 48}, .block = block};
    return QuantizeGptq(golden.Matrix("w"), *factor, options, pool)->loss;
  };
  const double usual = run(128);
  for (const int block : {1, 7, 48, 1000}) EXPECT_NEAR(run(block), usual, 0.05 * usual) << block;
}

TEST(Gptq, EveryConventionAndGranularityRuns) {
  const MethodGolden golden("gptq");
  ThreadPool pool(2);
  const auto w = golden.Matrix("w");
  const Hessian hessian = HessianOf(golden.Matrix("x"), pool);
  const auto factor = FactorHessian(hessian, {}, pool);
  for (const auto convention :
       {GridConvention::kGptq, GridConvention::kCompressedTensors, GridConvention::kAwq,
        GridConvention::kSmoothQuant, GridConvention::kGgml}) {
    for (const auto granularity :
         {Granularity::kTensor, Granularity::kChannel, Granularity::kGroup}) {
      const GridSpec grid = {
          .bits = 4, .granularity = granularity, .group = 64, .convention = convention};
      const auto rounded = QuantizeRtn(w, grid, pool);
      const auto found = QuantizeGptq(w, *factor, {.grid = grid}, pool);
      ASSERT_TRUE(found.has_value());
      EXPECT_LT(OutputError(w, found->matrix, hessian, pool),
                OutputError(w, *rounded, hessian, pool));
    }
  }
}

TEST(Gptq, RefusesWhatDoesNotFit) {
  const MethodGolden golden("gptq");
  ThreadPool pool(1);
  const Hessian hessian = HessianOf(golden.Matrix("x"), pool);
  const auto factor = FactorHessian(hessian, {}, pool);
  std::vector<float> w(10 * 160, 0.5f);
  EXPECT_FALSE(QuantizeGptq(DenseView(w.data(), 10, 96), *factor, {}, pool).has_value());
  w[500] = std::numeric_limits<float>::quiet_NaN();
  const auto found = QuantizeGptq(DenseView(w.data(), 10, 160), *factor, {}, pool);
  ASSERT_FALSE(found.has_value());
  EXPECT_NE(found.error().message.find("row 3 column 20"), std::string::npos);
}

}  // namespace
}  // namespace nibble
