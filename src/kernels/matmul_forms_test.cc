#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "format/small_float.h"
#include "kernels/matmul.h"
#include "kernels/matmul_test_support.h"
#include "platform/cpu.h"

namespace nibble {
namespace {

using testing::MatmulCase;
using testing::RandomInput;
using testing::TableFor;

constexpr int kRows = 41;
constexpr int kCols = 416;  // 13 groups of 32
constexpr int kTokens = 12;

// Inputs in the forms that checkpoints want, against the definitions in double.
class MatmulFormsTest : public ::testing::Test {
 protected:
  MatmulFormsTest() {
    std::iota(order_.begin(), order_.end(), 0);
    std::ranges::shuffle(order_, std::mt19937(4));
    for (int r = 0; r < kRows; ++r) scales_.push_back(0.3F + 0.01F * static_cast<float>(r));
  }

  // y on one instruction set.
  std::vector<float> Multiply(const PackedMatrix& w, Isa isa, Act act, int threads,
                              std::optional<std::span<const int>> list = std::nullopt) const {
    ThreadPool pool(threads);
    const KernelTable table = TableFor(isa);
    ActivationBlock block;
    const int tokens = list ? static_cast<int>(list->size()) : kTokens;
    std::vector<float> y(static_cast<size_t>(tokens * kRows));
    EXPECT_TRUE(block.Reserve(kTokens, kCols, w.Needs(act)));
    block.Prepare(table, pool, DenseView(x_.data(), kTokens, kCols), w.Needs(act), {}, w.input());
    const MatmulTask task = {&w, DenseView(y.data(), tokens, kRows)};
    nibble::Matmul(table, pool, act, block, std::span(&task, 1), list);
    return y;
  }

  // The input as the form has it, in double, in the packed order.
  static std::vector<double> Formed(const ActForm& form, const float* x) {
    std::vector<double> out(kCols);
    std::vector<float> in(kCols);
    for (size_t i = 0; i < kCols; ++i)
      in[i] = x[form.order == nullptr ? i : static_cast<size_t>(form.order[i])];
    float largest = 0;
    const bool outliers = form.scheme == ActScheme::kInt8Outliers;
    const auto is_outlier = [&](float v) {
      return outliers && form.threshold > 0 && std::fabs(v) >= form.threshold;
    };
    for (const float v : in) {
      if (!is_outlier(v)) largest = std::max(largest, std::fabs(v));
    }
    for (size_t i = 0; i < kCols; ++i) {
      const float v = in[i];
      switch (form.scheme) {
        case ActScheme::kUsual:
          out[i] = v;
          break;
        case ActScheme::kInt8Token:
        case ActScheme::kInt8Outliers:
          out[i] = is_outlier(v)
                       ? double{v}
                       : std::nearbyint(v * (127.0F / largest)) * double{largest / 127.0F};
          break;
        case ActScheme::kInt8Static:
          out[i] = std::clamp(std::nearbyint(v * (1.0F / form.scale)), -127.0F, 127.0F) *
                   double{form.scale};
          break;
        case ActScheme::kF8Token:
          out[i] = double{F8E4M3ToF32(F32ToF8E4M3Saturating(v / (largest / 448.0F)))} *
                   (largest / 448.0F);
          break;
        case ActScheme::kF8Static:
          out[i] = double{F8E4M3ToF32(F32ToF8E4M3Saturating(v / form.scale))} * form.scale;
          break;
      }
    }
    return out;
  }

  void Check(Format format, const ActForm& form, Act act, bool row_scales) const {
    ThreadPool pool(1);
    const MatmulCase c(format, kRows, kCols, 3, pool);
    PackedMatrix w = c.weights();
    w.SetInput(form);
    if (row_scales) w.SetRowScales(scales_.data());
    const std::vector<float> y = Multiply(w, Isa::kScalar, act, 1);
    std::vector<float> row(kCols);
    for (int t = 0; t < kTokens; ++t) {
      const std::vector<double> x = Formed(form, x_.data() + t * kCols);
      for (int r = 0; r < kRows; ++r) {
        w.DecodeRow(r, row.data());
        double sum = 0;
        double size = 0;
        for (size_t i = 0; i < kCols; ++i) {
          sum += row[i] * x[i];
          size += std::fabs(row[i] * x[i]);
        }
        ASSERT_NEAR(y[static_cast<size_t>(t * kRows + r)], sum, kCols * 0x1p-24 * size + 1e-12)
            << TraitsOf(format).name << " scheme " << static_cast<int>(form.scheme) << " token "
            << t << " row " << r;
      }
    }
    const std::vector<int> list = {11, 3, 4, 5, 0};
    for (const Isa isa : SupportedIsas()) {
      ASSERT_EQ(Multiply(w, isa, act, 3), y) << IsaName(isa);
      const std::vector<float> listed = Multiply(w, isa, act, 2, list);
      for (size_t i = 0; i < list.size(); ++i) {
        ASSERT_TRUE(std::equal(listed.begin() + static_cast<ptrdiff_t>(i) * kRows,
                               listed.begin() + static_cast<ptrdiff_t>(i + 1) * kRows,
                               y.begin() + static_cast<ptrdiff_t>(list[i]) * kRows))
            << IsaName(isa);
      }
    }
  }

  std::vector<float> x_ = RandomInput(kTokens, kCols, 8);
  std::vector<int32_t> order_ = std::vector<int32_t>(kCols);
  std::vector<float> scales_;
};

TEST_F(MatmulFormsTest, Int8OfAWholeRow) {
  for (const Format format : {Format::kW4G32, Format::kW8G32, Format::kQ8_0}) {
    for (const Act act : {Act::kInt8, Act::kF32}) {  // the form decides, not the flag
      Check(format, {.scheme = ActScheme::kInt8Token}, act, true);
      Check(format, {.scheme = ActScheme::kInt8Static, .scale = 0.031F}, act, false);
    }
  }
}

TEST_F(MatmulFormsTest, OutliersInFloats) {
  for (const float threshold : {1e-30F, 2.0F, 6.0F, 20.0F, 1e30F, 0.0F}) {
    Check(Format::kW8G32, {.scheme = ActScheme::kInt8Outliers, .threshold = threshold}, Act::kInt8,
          true);
  }
  Check(Format::kW8G32, {.scheme = ActScheme::kInt8Outliers, .threshold = 3}, Act::kF32, false);
}

TEST_F(MatmulFormsTest, RoundedToF8) {
  for (const Format format : {Format::kF8E4M3, Format::kF32}) {
    Check(format, {.scheme = ActScheme::kF8Token}, Act::kInt8, true);
    Check(format, {.scheme = ActScheme::kF8Static, .scale = 0.02F}, Act::kInt8, false);
  }
}

TEST_F(MatmulFormsTest, ColumnsInAnotherOrder) {
  Check(Format::kW4G32, {.order = order_.data()}, Act::kF32, true);
  Check(Format::kF32, {.order = order_.data()}, Act::kF32, false);
  Check(Format::kW8G32, {.scheme = ActScheme::kInt8Token, .order = order_.data()}, Act::kInt8,
        false);
}

// act=int8 on reordered columns quantises the groups of the packed order.
TEST_F(MatmulFormsTest, ReorderedGroupsAreQuantisedAsTheyArePacked) {
  ThreadPool pool(1);
  const MatmulCase c(Format::kW4G32, kRows, kCols, 3, pool);
  PackedMatrix w = c.weights();
  w.SetInput({.order = order_.data()});
  std::vector<float> sorted(x_.size());
  for (size_t t = 0; t < kTokens; ++t) {
    for (size_t i = 0; i < kCols; ++i) {
      sorted[t * kCols + i] = x_[t * kCols + static_cast<size_t>(order_[i])];
    }
  }
  const std::vector<float> y = Multiply(w, Isa::kScalar, Act::kInt8, 1);
  w.SetInput({});
  const KernelTable table = TableFor(Isa::kScalar);
  ActivationBlock block;
  ASSERT_TRUE(block.Reserve(kTokens, kCols, w.Needs(Act::kInt8)));
  block.Prepare(table, pool, DenseView(sorted.data(), kTokens, kCols), w.Needs(Act::kInt8));
  std::vector<float> expected(y.size());
  const MatmulTask task = {&w, DenseView(expected.data(), kTokens, kRows)};
  nibble::Matmul(table, pool, Act::kInt8, block, std::span(&task, 1));
  EXPECT_EQ(y, expected);
}

// FP8 with a scale for every block gives the bits of the same floats, whatever the blocks' width.
TEST_F(MatmulFormsTest, F8WithScalesOfBlocks) {
  ThreadPool pool(1);
  const MatmulCase c(Format::kF8E4M3, kRows, kCols, 3, pool);
  for (const int depth : {16, 100, 128, 300, 2048}) {
    PackedMatrix w = c.weights();
    std::vector<float> scales(PackedMatrix::BlockScaleFloats(kRows, kCols, depth));
    ASSERT_EQ(scales.size() % 48, 0U);
    for (size_t i = 0; i < scales.size(); ++i) scales[i] = 0.013F * static_cast<float>(i % 31);
    w.SetBlockScales(scales.data(), depth);
    std::vector<float> values(size_t{kRows} * kCols);
    for (int r = 0; r < kRows; ++r) {
      float* row = values.data() + ptrdiff_t{r} * kCols;
      c.weights().DecodeRow(r, row);
      for (int k = 0; k < kCols; ++k) row[k] *= scales[static_cast<size_t>(k / depth * 48 + r)];
      std::vector<float> decoded(kCols);
      w.DecodeRow(r, decoded.data());
      ASSERT_TRUE(std::equal(decoded.begin(), decoded.end(), row)) << depth;
    }
    AlignedBuffer buffer =
        *AlignedBuffer::Allocate(PackedMatrix::Bytes(Format::kF32, kRows, kCols));
    const PackedMatrix floats =
        PackedMatrix::Pack(Format::kF32, kRows, kCols, std::as_bytes(std::span(values)),
                           std::span(buffer.data(), buffer.size()), pool);
    const std::vector<float> expected = Multiply(floats, Isa::kScalar, Act::kInt8, 1);
    const std::vector<int> list = {7};
    for (const Isa isa : SupportedIsas()) {
      EXPECT_EQ(Multiply(w, isa, Act::kInt8, 2), expected) << IsaName(isa) << " " << depth;
      const std::vector<float> one = Multiply(w, isa, Act::kF32, 1, list);
      EXPECT_TRUE(std::equal(one.begin(), one.end(), expected.begin() + ptrdiff_t{7} * kRows));
    }
  }
}

// What is broken must show, and in its own row only.
TEST_F(MatmulFormsTest, NanShowsInItsRow) {
  ThreadPool pool(1);
  const MatmulCase c8(Format::kW8G32, kRows, kCols, 3, pool);
  const MatmulCase f8(Format::kF8E4M3, kRows, kCols, 3, pool);
  const std::vector<float> clean = x_;
  for (const float bad : {std::nanf(""), HUGE_VALF}) {
    for (const ActScheme scheme :
         {ActScheme::kInt8Token, ActScheme::kInt8Outliers, ActScheme::kF8Token}) {
      PackedMatrix w = scheme == ActScheme::kF8Token ? f8.weights() : c8.weights();
      w.SetInput({.scheme = scheme, .threshold = 6});
      x_ = clean;
      const std::vector<float> before = Multiply(w, Isa::kScalar, Act::kInt8, 1);
      x_[4 * kCols + 7] = bad;
      for (const Isa isa : SupportedIsas()) {
        const std::vector<float> y = Multiply(w, isa, Act::kInt8, 1);
        for (size_t i = 0; i < y.size(); ++i) {
          if (i / kRows == 4) {
            ASSERT_FALSE(std::isfinite(y[i])) << IsaName(isa) << static_cast<int>(scheme);
          } else {
            ASSERT_EQ(y[i], before[i]);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace nibble
