#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "base/math.h"
#include "kernels/matmul_kernels.h"
#include "kernels/matmul_test_support.h"
#include "kernels/panel_layout.h"
#include "platform/cpu.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

using testing::AllFormatsParam;
using testing::FormatName;
using testing::MatmulCase;
using testing::RandomInput;
using testing::TableFor;

class MatmulFormatTest : public ::testing::TestWithParam<Format> {
 protected:
  int Block() const { return TraitsOf(GetParam()).block_elements; }
  bool HasInt8() const { return TraitsOf(GetParam()).activation_group != 0; }
  std::vector<Act> Acts() const {
    return HasInt8() ? std::vector{Act::kInt8, Act::kF32} : std::vector{Act::kF32};
  }
  // Depths from one block on; formats without blocks take anything.
  std::vector<int> Depths() const {
    if (Block() == 1) return {1, 31, 576, 640};
    if (Block() == 256) return {256, 768, 1536, 2304};
    if (Block() == 128) return {128, 384, 640, 2176};
    return {Block(), 3 * Block(), 576, 640, 2112};
  }
};

TEST_P(MatmulFormatTest, LayoutAgreesWithTheFormat) {
  const PanelLayout layout = PanelLayoutOf(GetParam());
  const FormatTraits& traits = TraitsOf(GetParam());
  EXPECT_EQ(layout.block, traits.block_elements);
  EXPECT_EQ(layout.act_group, traits.activation_group);
  EXPECT_EQ(layout.chunk_bytes, kPanelRows * traits.block_bytes);
}

TEST_P(MatmulFormatTest, PackingKeepsEveryWeightExactly) {
  const FormatTraits& traits = TraitsOf(GetParam());
  ThreadPool pool(2);
  for (const int rows : {1, 15, 16, 17, 40}) {
    for (const int cols : Depths()) {
      const MatmulCase c(GetParam(), rows, cols, 7, pool);
      std::vector<float> expected(static_cast<size_t>(cols));
      std::vector<float> decoded(static_cast<size_t>(cols));
      for (int r = 0; r < rows; ++r) {
        traits.decode(c.file_row(r), expected.data(), expected.size());
        c.weights().DecodeRow(r, decoded.data());
        ASSERT_EQ(std::memcmp(expected.data(), decoded.data(), expected.size() * sizeof(float)), 0)
            << "rows " << rows << " cols " << cols << " row " << r;
      }
    }
  }
}

// y of all tokens on one instruction set.
std::vector<float> Multiply(const MatmulCase& c, Isa isa, Act act, MatrixView<const float> x,
                            ThreadPool& pool,
                            std::optional<std::span<const int>> token_rows = std::nullopt) {
  const int tokens = token_rows ? static_cast<int>(token_rows->size()) : x.rows;
  std::vector<float> y(static_cast<size_t>(tokens * c.weights().rows()), -1.0f);
  const KernelTable table = TableFor(isa);
  ActivationBlock block;
  const ActNeeds needs = c.weights().Needs(act);
  EXPECT_TRUE(block.Reserve(x.rows, x.cols, needs).has_value());
  block.Prepare(table, pool, x, needs);
  const MatmulTask task = {&c.weights(), DenseView(y.data(), tokens, c.weights().rows())};
  Matmul(table, pool, act, block, std::span(&task, 1), token_rows);
  return y;
}

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// The quantisation of kernels/activations.h, written again.
std::vector<float> Dequantised(std::span<const float> x, int group) {
  std::vector<float> out(x.size());
  for (size_t begin = 0; begin < x.size(); begin += static_cast<size_t>(group)) {
    const size_t end = std::min(x.size(), begin + static_cast<size_t>(group));
    float absmax = 0;
    for (size_t i = begin; i < end; ++i) absmax = std::max(absmax, std::fabs(x[i]));
    for (size_t i = begin; i < end && absmax > 0; ++i) {
      out[i] = std::nearbyintf(x[i] * (127.0f / absmax)) * (absmax / 127.0f);
    }
  }
  return out;
}

// Rounding of n fused multiply-adds in any order: n · eps · Σ |w x|; the scalar twin has at most
// four float operations per scale group besides.
TEST_P(MatmulFormatTest, ScalarTwinIsWithinRoundingOfExactArithmetic) {
  ThreadPool pool(1);
  for (const Act act : Acts()) {
    for (const int cols : Depths()) {
      const MatmulCase c(GetParam(), 19, cols, 11, pool);
      const std::vector<float> x = RandomInput(3, cols, 5);
      const auto y = Multiply(c, Isa::kScalar, act, DenseView(x.data(), 3, cols), pool);
      std::vector<float> w(static_cast<size_t>(cols));
      for (int r = 0; r < 19; ++r) {
        TraitsOf(GetParam()).decode(c.file_row(r), w.data(), w.size());
        for (int t = 0; t < 3; ++t) {
          std::vector<float> a(x.begin() + t * cols, x.begin() + (t + 1) * cols);
          if (act == Act::kInt8) a = Dequantised(a, TraitsOf(GetParam()).activation_group);
          double exact = 0;
          double largest_weight = 0;
          double input = 0;
          for (size_t k = 0; k < a.size(); ++k) {
            exact += double{w[k]} * double{a[k]};
            largest_weight = std::max(largest_weight, std::fabs(double{w[k]}));
            input += std::fabs(double{a[k]});
          }
          // Codes and minima of one sign each may cancel to weights a quarter their size.
          const double bound = (cols + 8) * 0x1p-24 * 4 * largest_weight * input + 1e-30;
          ASSERT_NEAR(y[static_cast<size_t>(t * 19 + r)], exact, bound)
              << "cols " << cols << " row " << r << " token " << t;
        }
      }
    }
  }
}

TEST_P(MatmulFormatTest, EveryInstructionSetGivesTheTwinsBits) {
  ThreadPool pool(2);
  for (const int rows : {1, 15, 31, 80}) {
    for (const int cols : Depths()) {
      const MatmulCase c(GetParam(), rows, cols, static_cast<unsigned>(rows + cols), pool);
      const std::vector<float> x = RandomInput(40, cols, 3);
      for (const Act act : Acts()) {
        const auto all = DenseView(x.data(), 40, cols);
        const auto expected = Multiply(c, Isa::kScalar, act, all, pool);
        for (const Isa isa : SupportedIsas()) {
          for (const int tokens : {1, 3, 8, 11, 33, 40}) {
            const auto y = Multiply(c, isa, act, DenseView(x.data(), tokens, cols), pool);
            ASSERT_TRUE(SameBits(y, std::span(expected).first(y.size())))
                << IsaName(isa) << " rows " << rows << " cols " << cols << " tokens " << tokens
                << " act " << static_cast<int>(act);
          }
        }
      }
    }
  }
}

TEST_P(MatmulFormatTest, EachRowOfABatchEqualsTheRowAlone) {
  ThreadPool pool(2);
  const int cols = Depths().back();
  constexpr int kRows = 49;
  const MatmulCase c(GetParam(), kRows, cols, 21, pool);
  const std::vector<float> x = RandomInput(40, cols, 9);
  for (const Act act : Acts()) {
    for (const Isa isa : SupportedIsas()) {
      if (isa == Isa::kScalar) continue;
      std::vector<float> alone;
      for (int t = 0; t < 40; ++t) {
        const auto y = Multiply(c, isa, act, DenseView(x.data() + t * cols, 1, cols), pool);
        alone.insert(alone.end(), y.begin(), y.end());
      }
      for (int tokens = 1; tokens <= 40; ++tokens) {
        const auto y = Multiply(c, isa, act, DenseView(x.data(), tokens, cols), pool);
        ASSERT_TRUE(SameBits(y, std::span(alone).first(y.size())))
            << IsaName(isa) << " tokens " << tokens;
      }
    }
  }
}

TEST_P(MatmulFormatTest, ThreadsAndTokenListsDoNotMoveABit) {
  ThreadPool one(1);
  const int cols = Depths()[1];
  constexpr int kRows = 150;
  const MatmulCase c(GetParam(), kRows, cols, 2, one);
  const std::vector<float> x = RandomInput(20, cols, 1);
  const auto all = DenseView(x.data(), 20, cols);
  // Runs, repetitions, backward steps; rows all apart; one row; none.
  const std::vector<std::vector<int>> lists = {
      {19, 0, 1, 2, 9, 8, 8, 16, 17, 18, 19}, {0, 2, 5, 7, 9, 12, 15, 17, 19}, {13}, {}};
  for (const Act act : Acts()) {
    for (const Isa isa : SupportedIsas()) {
      const auto expected = Multiply(c, isa, act, all, one);
      for (int threads = 2; threads <= 8; ++threads) {
        ThreadPool pool(threads);
        ASSERT_TRUE(SameBits(Multiply(c, isa, act, all, pool), expected)) << threads;
      }
      for (const std::vector<int>& list : lists) {
        const auto listed = Multiply(c, isa, act, all, one, list);
        ASSERT_EQ(listed.size(), list.size() * kRows);
        for (size_t i = 0; i < list.size(); ++i) {
          const auto want =
              std::span(expected).subspan(static_cast<size_t>(list[i]) * kRows, kRows);
          ASSERT_TRUE(SameBits(std::span(listed).subspan(i * kRows, kRows), want))
              << IsaName(isa) << " entry " << i << " of " << list.size();
        }
      }
    }
  }
}

TEST_P(MatmulFormatTest, AnEmptyListOfTokensComputesNothing) {
  ThreadPool pool(2);
  const int cols = Depths()[1];
  const MatmulCase c(GetParam(), 31, cols, 2, pool);
  const std::vector<float> x = RandomInput(4, cols, 1);
  for (const Act act : Acts()) {
    const KernelTable table = TableFor(Isa::kScalar);
    ActivationBlock block;
    ASSERT_TRUE(block.Reserve(4, cols, c.weights().Needs(act)).has_value());
    block.Prepare(table, pool, DenseView(x.data(), 4, cols), c.weights().Needs(act));
    std::vector<float> y(4 * 31, 0.5f);
    const MatmulTask task = {&c.weights(), DenseView(y.data(), 4, 31)};
    Matmul(table, pool, act, block, std::span(&task, 1), std::span<const int>());
    for (const float value : y) ASSERT_EQ(value, 0.5f);
  }
}

// Widths and depths of small models: not powers of two, and many panels.
TEST_P(MatmulFormatTest, WidthsOfSmallModels) {
  ThreadPool pool(2);
  for (const int rows : {576, 640, 1536}) {
    const int cols = Block() == 256 ? 768 : rows == 640 || Block() == 128 ? 640 : 576;
    const MatmulCase c(GetParam(), rows, cols, 19, pool);
    const std::vector<float> x = RandomInput(9, cols, 4);
    for (const Act act : Acts()) {
      const auto all = DenseView(x.data(), 9, cols);
      const auto expected = Multiply(c, Isa::kScalar, act, all, pool);
      for (const Isa isa : SupportedIsas()) {
        for (const int tokens : {1, 9}) {
          const auto y = Multiply(c, isa, act, DenseView(x.data(), tokens, cols), pool);
          ASSERT_TRUE(SameBits(y, std::span(expected).first(y.size())))
              << IsaName(isa) << " rows " << rows << " cols " << cols << " tokens " << tokens;
        }
      }
    }
  }
}

TEST_P(MatmulFormatTest, SeveralTasksWithBiasAndAccumulation) {
  ThreadPool pool(3);
  const int cols = Depths()[1];
  const std::vector<float> x = RandomInput(12, cols, 1);
  const auto all = DenseView(x.data(), 12, cols);
  const MatmulCase a(GetParam(), 33, cols, 3, pool);
  const MatmulCase b(GetParam(), 7, cols, 4, pool);
  const std::vector<float> bias = RandomInput(1, 33, 8);
  for (const Act act : Acts()) {
    const auto plain_a = Multiply(a, Isa::kScalar, act, all, pool);
    const auto plain_b = Multiply(b, Isa::kScalar, act, all, pool);
    for (const Isa isa : SupportedIsas()) {
      const KernelTable table = TableFor(isa);
      ActivationBlock block;
      ASSERT_TRUE(block.Reserve(12, cols, a.weights().Needs(act)).has_value());
      block.Prepare(table, pool, all, a.weights().Needs(act));
      std::vector<float> y_a(12 * 33, 0.5f);
      std::vector<float> y_b(12 * 7, 0.25f);
      const std::vector<MatmulTask> tasks = {
          {&a.weights(), DenseView(y_a.data(), 12, 33), bias.data(), false},
          {&b.weights(), DenseView(y_b.data(), 12, 7), nullptr, true}};
      Matmul(table, pool, act, block, tasks);
      for (size_t i = 0; i < y_a.size(); ++i) {
        ASSERT_EQ(std::bit_cast<uint32_t>(y_a[i]),
                  std::bit_cast<uint32_t>(plain_a[i] + bias[i % 33]));
      }
      for (size_t i = 0; i < y_b.size(); ++i) {
        ASSERT_EQ(std::bit_cast<uint32_t>(y_b[i]), std::bit_cast<uint32_t>(0.25f + plain_b[i]));
      }
    }
  }
}

// All codes at either end against activations at ±127: the edge of every 16-bit sum.
TEST_P(MatmulFormatTest, LargestCodesAndActivationsDoNotSaturate) {
  if (!HasInt8()) GTEST_SKIP() << "computes in floats only";
  ThreadPool pool(1);
  const int cols = Block() == 256 ? 256 : 2 * Block();
  for (const int fill : {0x00, 0xff, 0x88, 0x77, 0x80, 0x7f}) {
    const MatmulCase c = MatmulCase::Filled(GetParam(), 16, cols, static_cast<uint8_t>(fill), pool);
    constexpr int kTokens = 40;  // more than the kernels for few tokens take
    std::vector<float> x(static_cast<size_t>(kTokens * cols));
    for (int t = 0; t < kTokens; ++t) {
      for (int k = 0; k < cols; ++k) {
        const bool negative = t == 1 || (t > 1 && (k >> (t - 2) % 10) % 2 == 1);
        x[static_cast<size_t>(t * cols + k)] = negative ? -1.0f : 1.0f;
      }
    }
    const auto all = DenseView(x.data(), kTokens, cols);
    const auto expected = Multiply(c, Isa::kScalar, Act::kInt8, all, pool);
    for (const Isa isa : SupportedIsas()) {
      for (const int tokens : {1, 2, 12, kTokens}) {
        const auto y = Multiply(c, isa, Act::kInt8, DenseView(x.data(), tokens, cols), pool);
        ASSERT_TRUE(SameBits(y, std::span(expected).first(y.size())))
            << IsaName(isa) << " fill " << fill;
      }
    }
  }
}

// A broken activation must not turn into a number.
TEST_P(MatmulFormatTest, NanAndInfinityStayInTheirRowAndShow) {
  ThreadPool pool(1);
  constexpr int kTokens = 12;
  constexpr int kRows = 18;
  const int cols = Depths()[1];
  const MatmulCase c(GetParam(), kRows, cols, 13, pool);
  std::vector<float> x = RandomInput(kTokens, cols, 6);
  const auto clean = x;
  const auto at = [&](int t, int k) -> float& { return x[static_cast<size_t>(t * cols + k)]; };
  at(0, cols - 1) = std::numeric_limits<float>::quiet_NaN();
  at(3, 0) = std::bit_cast<float>(0xffffffffU);
  at(7, cols / 2) = std::numeric_limits<float>::infinity();
  at(11, 0) = -std::numeric_limits<float>::infinity();
  for (const Act act : Acts()) {
    for (const Isa isa : SupportedIsas()) {
      for (const int tokens : {1, 4, 8, 12}) {
        const auto want = Multiply(c, isa, act, DenseView(clean.data(), tokens, cols), pool);
        const auto got =
            Multiply(c, isa, act, DenseView(std::as_const(x).data(), tokens, cols), pool);
        for (int t = 0; t < tokens; ++t) {
          const auto begin = static_cast<size_t>(t * kRows);
          const auto row = std::span(got).subspan(begin, kRows);
          if (t == 0 || t == 3 || t == 7 || t == 11) {
            for (const float value : row) {
              ASSERT_TRUE(act == Act::kInt8 ? std::isnan(value) : !std::isfinite(value))
                  << IsaName(isa) << " token " << t;
            }
          } else {
            ASSERT_TRUE(SameBits(row, std::span(want).subspan(begin, kRows)))
                << IsaName(isa) << " token " << t;
          }
        }
      }
    }
  }
}

TEST_P(MatmulFormatTest, ExtremeScalesZerosAndDenormals) {
  ThreadPool pool(1);
  const int cols = Depths()[1];
  std::vector<float> x = RandomInput(12, cols, 77);
  const auto row = [&](int t) { return x.begin() + static_cast<ptrdiff_t>(t) * cols; };
  std::fill(row(0), row(1), 0.0f);
  std::fill(row(1), row(2), -0.0f);
  std::transform(row(2), row(3), row(2), [](float v) { return v * 0x1p-140f; });
  std::transform(row(3), row(4), row(3), [](float v) { return v * 0x1p-119f; });
  std::transform(row(4), row(5), row(4), [](float v) { return v * 0x1p60f; });
  *row(5) = 1e20f;
  std::transform(row(6), row(7), row(6), [](float v) { return std::copysign(1.0f, v); });
  for (const uint16_t scale : {0x0000, 0x8000, 0x0001, 0x03ff, 0x7bff, 0xfbff}) {
    const MatmulCase c = MatmulCase::WithScale(GetParam(), 18, cols, scale, pool);
    for (const Act act : Acts()) {
      const auto expected = Multiply(c, Isa::kScalar, act, DenseView(x.data(), 12, cols), pool);
      for (const Isa isa : SupportedIsas()) {
        for (const int tokens : {7, 12}) {
          const auto y = Multiply(c, isa, act, DenseView(x.data(), tokens, cols), pool);
          ASSERT_TRUE(SameBits(y, std::span(expected).first(y.size())))
              << IsaName(isa) << " scale " << scale;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, MatmulFormatTest, ::testing::ValuesIn(AllFormatsParam()),
                         FormatName);

}  // namespace
}  // namespace nibble
