#include "kernels/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numbers>

#include "kernels/kernel_test_support.h"
#include "kernels/ref/float_ref.h"
#include "kernels/ref/math.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

using testing::Bits;
using testing::FloatTable;
using testing::RandomFloats;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int kSizes[] = {1, 2, 7, 15, 16, 17, 31, 32, 33, 63, 64, 100, 576, 640, 1023, 4099};

// ---- accuracy of the scalar twins against the C library in double

void ExpectUlps(float got, double want, double ulps, float x) {
  const double unit = std::ldexp(1.0, std::max(-149, std::ilogb(want) - 23));
  EXPECT_LE(std::fabs(got - want), ulps * unit) << "at " << x << ": " << got << " for " << want;
}

TEST(FloatMath, ExpWithinOneAndAHalfUlps) {
  for (float x = -87.3F; x < 88.7F; x += 0.00317F)
    ExpectUlps(ref::Exp(x), std::exp(double{x}), 1.5, x);
  EXPECT_EQ(ref::Exp(0), 1);
  EXPECT_EQ(ref::Exp(-kInf), 0);
  EXPECT_EQ(ref::Exp(-88), 0);
  EXPECT_EQ(ref::Exp(88.73F), kInf);
  EXPECT_EQ(ref::Exp(kInf), kInf);
  EXPECT_TRUE(std::isnan(ref::Exp(std::nanf(""))));
}

TEST(FloatMath, Exp2WithinOneAndAHalfUlps) {
  for (float x = -126; x < 128; x += 0.00417F)
    ExpectUlps(ref::Exp2(x), std::exp2(double{x}), 1.5, x);
  EXPECT_EQ(ref::Exp2(0), 1);
  EXPECT_EQ(ref::Exp2(-kInf), 0);
  EXPECT_EQ(ref::Exp2(-126.5F), 0);
  EXPECT_EQ(ref::Exp2(128), kInf);
  EXPECT_EQ(ref::Exp2(-64.5F, math_constants::kSoftmaxMin), 0);
  EXPECT_EQ(ref::Exp2(-64, math_constants::kSoftmaxMin), 0x1p-64F);
  for (int n = -126; n < 128; ++n) EXPECT_EQ(ref::Exp2(n), std::ldexp(1.0F, n));
}

TEST(FloatMath, TanhWithinThreeUlps) {
  for (float x = 1e-30F; x < 20; x *= 1.0013F) {
    ExpectUlps(ref::Tanh(x), std::tanh(double{x}), 3, x);
    EXPECT_EQ(ref::Tanh(-x), -ref::Tanh(x));
  }
  EXPECT_EQ(ref::Tanh(kInf), 1);
  EXPECT_EQ(ref::Tanh(-kInf), -1);
  EXPECT_EQ(ref::Tanh(0), 0);
}

TEST(FloatMath, SigmoidWithinThreeUlps) {
  for (float x = -86; x < 86; x += 0.00371F) {
    ExpectUlps(ref::Sigmoid(x), 1 / (1 + std::exp(-double{x})), 3, x);
  }
}

TEST(FloatMath, PhiWithinTwoToTheMinus23) {
  for (float x = -12; x < 12; x += 0.00113F) {
    const double want = 0.5 * std::erfc(-double{x} / std::numbers::sqrt2);
    EXPECT_LE(std::fabs(ref::Phi(x) - want), 0x1p-23) << x;
  }
  EXPECT_EQ(ref::Phi(-kInf), 0);
  EXPECT_EQ(ref::Phi(kInf), 1);
}

// ---- operations against the formula in double

TEST(Elementwise, RmsNormFollowsTheFormula) {
  const KernelTable kernels = FloatTable(Isa::kScalar);
  for (int n : kSizes) {
    const auto x = RandomFloats(static_cast<size_t>(n), 1, 3);
    const auto w = RandomFloats(static_cast<size_t>(n), 2);
    std::vector<float> y(x.size());
    RmsNorm(kernels, {.weight = w.data(), .eps = 1e-5F}, x.data(), n, y.data());
    double squares = 0;
    for (float v : x) squares += double{v} * v;
    const double inverse = 1 / std::sqrt(squares / n + 1e-5);
    for (int i = 0; i < n; ++i) {
      const double want = x[i] * inverse * w[i];
      EXPECT_NEAR(y[i], want, (n / 32.0 + 12) * 0x1p-24 * std::fabs(want)) << n;
    }
  }
}

TEST(Elementwise, LayerNormFollowsTheFormula) {
  const KernelTable kernels = FloatTable(Isa::kScalar);
  for (int n : kSizes) {
    const auto x = RandomFloats(static_cast<size_t>(n), 3, 2);
    const auto w = RandomFloats(static_cast<size_t>(n), 4);
    const auto b = RandomFloats(static_cast<size_t>(n), 5);
    std::vector<float> y(x.size());
    LayerNorm(kernels, {w.data(), b.data(), 1e-5F}, x.data(), n, y.data());
    double mean = 0;
    for (float v : x) mean += v;
    mean /= n;
    double variance = 0;
    for (float v : x) variance += (v - mean) * (v - mean);
    const double inverse = 1 / std::sqrt(variance / n + 1e-5);
    for (int i = 0; i < n; ++i) {
      EXPECT_NEAR(y[i], (x[i] - mean) * inverse * w[i] + b[i], n == 1 ? 1e-3 : 2e-5) << n;
    }
  }
}

TEST(Elementwise, GatesFollowTheFormulas) {
  const KernelTable kernels = FloatTable(Isa::kScalar);
  std::vector<float> a;
  for (float x = -20; x < 20; x += 0.0131F) a.push_back(x);
  const int n = static_cast<int>(a.size());
  const std::vector<float> b(a.size(), 2);
  std::vector<float> y(a.size());
  const std::pair<Gate, double (*)(double)> gates[] = {
      {Gate::kSilu, [](double x) { return x / (1 + std::exp(-x)); }},
      {Gate::kGeluTanh,
       [](double x) {
         return 0.5 * x *
                (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
       }},
      {Gate::kGeluErf, [](double x) { return 0.5 * x * std::erfc(-x / std::numbers::sqrt2); }}};
  for (const auto& [gate, formula] : gates) {
    ApplyGate(kernels, gate, a.data(), b.data(), n, y.data());
    for (int i = 0; i < n; ++i) {
      EXPECT_NEAR(y[i], 2 * formula(a[i]), 2 * 0x1p-22 * std::max(1.0, std::fabs(double{a[i]})));
    }
    ApplyGate(kernels, gate, a.data(), nullptr, n, y.data());
    EXPECT_NEAR(y[0], formula(a[0]), 1e-5);
  }
}

TEST(Elementwise, RopeRotatesPairsOfBothOrders) {
  const KernelTable kernels = FloatTable(Isa::kScalar);
  const float inv_freq[] = {1, 0.01F};
  std::vector<float> cos(10 * 2);
  std::vector<float> sin(10 * 2);
  for (int p = 0; p < 10; ++p) {
    FillRopeRow(Position{p}, inv_freq, 1, &cos[2 * p], &sin[2 * p]);
  }
  // Five channels per head: the last one is not rotated.
  for (bool interleaved : {false, true}) {
    const RopeTable table = {DenseView<const float>(cos.data(), 10, 2),
                             DenseView<const float>(sin.data(), 10, 2), interleaved};
    const auto before = RandomFloats(2 * 10, 7);
    auto x = before;
    Rope(kernels, table, 0, 2, std::span(x).first(10));
    Rope(kernels, table, 7, 2, std::span(x).last(10));
    for (int i = 0; i < 10; ++i) EXPECT_EQ(x[i], before[i]);
    for (int head = 0; head < 2; ++head) {
      const float* in = &before[10 + 5 * head];
      const float* out = &x[10 + 5 * head];
      for (int i = 0; i < 2; ++i) {
        const int first = interleaved ? 2 * i : i;
        const int second = interleaved ? 2 * i + 1 : i + 2;
        const double angle = 7 * double{inv_freq[i]};
        EXPECT_NEAR(out[first], in[first] * std::cos(angle) - in[second] * std::sin(angle), 1e-6);
        EXPECT_NEAR(out[second], in[second] * std::cos(angle) + in[first] * std::sin(angle), 1e-6);
      }
      EXPECT_EQ(out[4], in[4]);
    }
  }
}

TEST(Elementwise, RopeTableIsExactFarOut) {
  const float inv_freq[] = {1, 0.7498942F, 1e-4F};
  float cos[3];
  float sin[3];
  for (int position : {0, 1, 4095, 131071, 1048575}) {
    FillRopeRow(Position{position}, inv_freq, 1.25F, cos, sin);
    for (int i = 0; i < 3; ++i) {
      const double angle = position * double{inv_freq[i]};
      EXPECT_NEAR(cos[i], 1.25 * std::cos(angle), 1e-7 * 1.25);
      EXPECT_NEAR(sin[i], 1.25 * std::sin(angle), 1e-7 * 1.25);
    }
  }
}

TEST(Elementwise, LogSumExpOfLargeVocabulary) {
  auto x = RandomFloats(262144, 11, 4);
  x[17] = -kInf;
  long double sum = 0;
  for (float v : x) sum += std::exp(static_cast<long double>(v));
  const LogSumExp got = ComputeLogSumExp(FloatTable(Isa::kScalar), x);
  EXPECT_NEAR(got.log_sum_exp, static_cast<double>(std::log(sum)), 40 * 0x1p-24);
  EXPECT_EQ(got.max, *std::max_element(x.begin(), x.end()));
}

TEST(Elementwise, DivergenceOfLargeVocabulary) {
  for (const float scale : {1e-3F, 0.1F, 3.0F}) {
    const auto p = RandomFloats(49152, 21, 5);
    auto q = RandomFloats(p.size(), 22, scale);
    for (size_t i = 0; i < q.size(); ++i) q[i] += p[i] + 2;  // a shift is no difference
    long double sum_p = 0;
    long double sum_q = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      sum_p += std::exp(static_cast<long double>(p[i]));
      sum_q += std::exp(static_cast<long double>(q[i]));
    }
    long double want = 0;
    long double spread = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      const long double away = p[i] - std::log(sum_p) - (q[i] - std::log(sum_q));
      want += std::exp(static_cast<long double>(p[i])) / sum_p * away;
      spread += std::exp(static_cast<long double>(p[i])) / sum_p * std::abs(away);
    }
    const KernelTable& kernels = FloatTable(Isa::kScalar);
    const LogitsPair row = {p, q, ComputeLogSumExp(kernels, p), ComputeLogSumExp(kernels, q)};
    EXPECT_NEAR(ComputeDivergence(kernels, row), static_cast<double>(want),
                static_cast<double>(spread) * 0x1p-18 + 6e-6);
    const LogitsPair same = {p, p, row.base_sum, row.base_sum};
    EXPECT_EQ(ComputeDivergence(kernels, same), 0);
  }
}

TEST(Elementwise, DivergenceWithForbiddenTokens) {
  std::vector<float> p = {0, 0, -kInf, 0};
  std::vector<float> q = {0, 0, 5, 0};
  const KernelTable& kernels = FloatTable(Isa::kScalar);
  const LogitsPair row = {p, q, ComputeLogSumExp(kernels, p), ComputeLogSumExp(kernels, q)};
  EXPECT_NEAR(ComputeDivergence(kernels, row), std::log((3 + std::exp(5.0)) / 3), 1e-5);
}

// ---- the same bits on every instruction set, for odd sizes and misaligned rows

class SameBits : public ::testing::TestWithParam<Isa> {
 protected:
  // Runs op on the twin and on this instruction set, with inputs at all offsets, and compares.
  using Op =
      std::function<void(const FloatKernels&, const float* a, const float* b, int n, float* y)>;
  void Check(const Op& op) {
    for (int n : kSizes) {
      for (int offset : {0, 1, 3}) {
        auto a = RandomFloats(static_cast<size_t>(n) + 64, static_cast<unsigned>(n), 8);
        auto b = RandomFloats(static_cast<size_t>(n) + 64, static_cast<unsigned>(n) + 1);
        for (size_t i = 0; i < a.size(); i += 5) a[i] *= 1e-3F;
        for (size_t i = 3; i < a.size(); i += 41) a[i] *= 20;
        if (n > 20) a[offset + 11] = 0;
        if (n > 20) a[offset + 13] = -0.0F;
        std::vector<float> want(a.size(), 7);
        std::vector<float> got(a.size(), 7);
        op(ref::kFloatKernels, a.data() + offset, b.data() + offset, n, want.data() + offset);
        op(*FloatKernelsFor(GetParam()), a.data() + offset, b.data() + offset, n,
           got.data() + offset);
        ASSERT_EQ(Bits(got), Bits(want)) << "n=" << n << " offset=" << offset;
      }
    }
  }
};

TEST_P(SameBits, Norms) {
  Check([](const FloatKernels& k, const float* a, const float* b, int n, float* y) {
    k.rms_norm(a, b, 1e-6F, n, y);
  });
  Check([](const FloatKernels& k, const float* a, const float*, int n, float* y) {
    k.rms_norm(a, nullptr, 1e-6F, n, y);
  });
  Check([](const FloatKernels& k, const float* a, const float* b, int n, float* y) {
    k.layer_norm(a, b, b + 1, 1e-6F, n, y);
  });
  Check([](const FloatKernels& k, const float* a, const float* b, int n, float* y) {
    k.layer_norm(a, b, nullptr, 1e-6F, n, y);
  });
}

TEST_P(SameBits, NormInPlace) {
  Check([](const FloatKernels& k, const float* a, const float* b, int n, float* y) {
    std::copy_n(a, n, y);
    k.rms_norm(y, b, 1e-6F, n, y);
  });
}

TEST_P(SameBits, Gates) {
  for (int gate = 0; gate < 3; ++gate) {
    Check([gate](const FloatKernels& k, const float* a, const float* b, int n, float* y) {
      k.gate[gate](a, b, n, y);
    });
    Check([gate](const FloatKernels& k, const float* a, const float*, int n, float* y) {
      k.gate[gate](a, nullptr, n, y);
    });
  }
}

TEST_P(SameBits, AddScaleSoftCap) {
  Check(
      [](const FloatKernels& k, const float* a, const float*, int n, float* y) { k.add(a, n, y); });
  Check([](const FloatKernels& k, const float* a, const float*, int n, float* y) {
    std::copy_n(a, n, y);
    k.scale(0.3F, n, y);
  });
  Check([](const FloatKernels& k, const float* a, const float*, int n, float* y) {
    std::copy_n(a, n, y);
    k.soft_cap(30, n, y);
  });
}

TEST_P(SameBits, Rope) {
  for (int head_dim : {2, 5, 6, 16, 24, 40, 64, 80, 96, 256, 600}) {
    for (int pairs : {head_dim / 2, head_dim / 4}) {
      if (pairs == 0) continue;
      const auto cos = RandomFloats(static_cast<size_t>(pairs), 1);
      const auto sin = RandomFloats(static_cast<size_t>(pairs), 2);
      const auto x = RandomFloats(static_cast<size_t>(3 * head_dim) + 1, 3);
      const RopeRow row = {cos.data(), sin.data(), pairs, 3, head_dim};
      const FloatKernels& kernels = *FloatKernelsFor(GetParam());
      auto want = x;
      auto got = x;
      ref::kFloatKernels.rope_halves(row, want.data() + 1);
      kernels.rope_halves(row, got.data() + 1);
      ASSERT_EQ(Bits(got), Bits(want)) << head_dim << " " << pairs;
      want = got = x;
      ref::kFloatKernels.rope_interleaved(row, want.data() + 1);
      kernels.rope_interleaved(row, got.data() + 1);
      ASSERT_EQ(Bits(got), Bits(want)) << head_dim << " " << pairs;
    }
  }
}

TEST_P(SameBits, MaxAndSumExp) {
  Check([](const FloatKernels& k, const float* a, const float*, int n, float* y) {
    y[0] = k.max(a, n);
  });
  for (int n : kSizes) {
    auto x = RandomFloats(static_cast<size_t>(n), static_cast<unsigned>(n), 10);
    if (n > 40) x[33] = -kInf;
    const FloatKernels& kernels = *FloatKernelsFor(GetParam());
    EXPECT_EQ(std::bit_cast<uint64_t>(kernels.sum_exp(x.data(), 3.5F, n)),
              std::bit_cast<uint64_t>(ref::kFloatKernels.sum_exp(x.data(), 3.5F, n)));
    const auto y = RandomFloats(static_cast<size_t>(n), static_cast<unsigned>(n) + 1, 10);
    EXPECT_EQ(std::bit_cast<uint64_t>(kernels.sum_exp_gap(x.data(), y.data(), 3.5F, 0.25F, n)),
              std::bit_cast<uint64_t>(
                  ref::kFloatKernels.sum_exp_gap(x.data(), y.data(), 3.5F, 0.25F, n)));
  }
}

TEST_P(SameBits, FunctionsAtEveryExponent) {
  std::vector<float> x;
  for (int e = -149; e < 128; ++e) {
    for (float m : {1.0F, 1.2F, 1.75F, 1.99F}) {
      x.push_back(std::ldexp(m, e));
      x.push_back(-std::ldexp(m, e));
    }
  }
  for (float special : {0.0F, -0.0F, kInf, 88.7228F, 88.72284F, -87.3365F, 0.625F, 127.99F}) {
    x.push_back(special);
  }
  const int n = static_cast<int>(x.size());
  std::vector<float> want(x.size());
  std::vector<float> got(x.size());
  for (int gate = 0; gate < 3; ++gate) {
    ref::kFloatKernels.gate[gate](x.data(), nullptr, n, want.data());
    FloatKernelsFor(GetParam())->gate[gate](x.data(), nullptr, n, got.data());
    EXPECT_EQ(Bits(got), Bits(want)) << gate;
  }
  want = got = x;
  ref::kFloatKernels.soft_cap(5, n, want.data());
  FloatKernelsFor(GetParam())->soft_cap(5, n, got.data());
  EXPECT_EQ(Bits(got), Bits(want));
}

// NaN with a payload too: the exponentials build their result from integers.
TEST_P(SameBits, NanGivesNan) {
  constexpr int kCount = 67;
  const FloatKernels& kernels = *FloatKernelsFor(GetParam());
  const std::vector<float> ones(kCount, 1);
  for (const uint32_t bits : {0x7fc00000U, 0xffc00000U, 0x7fc00001U, 0xffffffffU, 0x7f800001U}) {
    EXPECT_TRUE(std::isnan(ref::Exp(std::bit_cast<float>(bits))));
    EXPECT_TRUE(std::isnan(ref::Exp2(std::bit_cast<float>(bits))));
    const std::vector<float> x(kCount, std::bit_cast<float>(bits));
    const auto expect_nan = [&](auto op) {
      std::vector<float> y = x;
      op(y.data());
      for (const float value : y) ASSERT_TRUE(std::isnan(value)) << bits;
    };
    for (const auto gate : kernels.gate) {
      expect_nan([&](float* y) { gate(x.data(), nullptr, kCount, y); });
      expect_nan([&](float* y) { gate(ones.data(), x.data(), kCount, y); });
    }
    expect_nan([&](float* y) { kernels.soft_cap(30, kCount, y); });
    expect_nan([&](float* y) { kernels.rms_norm(x.data(), ones.data(), 1e-6F, kCount, y); });
    expect_nan(
        [&](float* y) { kernels.layer_norm(x.data(), ones.data(), nullptr, 1e-6F, kCount, y); });
    expect_nan([&](float* y) { kernels.add(ones.data(), kCount, y); });
    expect_nan([&](float* y) { kernels.scale(0, kCount, y); });
  }
}

TEST_P(SameBits, RowsAndThreadsDoNotMatter) {
  const KernelTable kernels = FloatTable(GetParam());
  constexpr int kRows = 37;
  constexpr int kCols = 577;
  const auto x = RandomFloats(kRows * kCols, 5);
  const auto w = RandomFloats(kCols, 6);
  const auto make_row = [&](int r, float* y) {
    RmsNorm(kernels, {.weight = w.data(), .eps = 1e-5F}, &x[r * kCols], kCols, y);
    ApplyGate(kernels, Gate::kSilu, y, &x[r * kCols], kCols, y);
  };
  std::vector<float> want(x.size());
  for (int r = 0; r < kRows; ++r) make_row(r, &want[r * kCols]);
  for (int threads : {2, 3}) {
    ThreadPool pool(threads);
    std::vector<float> got(x.size());
    ForRows(pool, kRows, kCols, [&](int r) { make_row(r, &got[r * kCols]); });
    EXPECT_EQ(Bits(got), Bits(want));
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, SameBits, ::testing::ValuesIn(SupportedIsas()),
                         [](const auto& info) { return std::string(IsaName(info.param)); });

}  // namespace
}  // namespace nibble
