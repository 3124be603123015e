#include "quantize/rotation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "platform/thread_pool.h"

namespace nibble {
namespace {

std::vector<float> Random(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// W x (+ bias), in double.
std::vector<double> Apply(MatrixView<const float> w, std::span<const float> bias,
                          const std::vector<double>& x) {
  std::vector<double> y(static_cast<size_t>(w.rows));
  for (int r = 0; r < w.rows; ++r) {
    double& sum = y[static_cast<size_t>(r)];
    for (int c = 0; c < w.cols; ++c) sum += double{w.row(r)[c]} * x[static_cast<size_t>(c)];
    if (!bias.empty()) sum += double{bias[static_cast<size_t>(r)]};
  }
  return y;
}

void ExpectNear(const std::vector<double>& found, const std::vector<double>& expected,
                double bound) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], bound) << i;
}

// Orders of Sylvester, of Paley's first and second kind, over fields of primes and of their powers
// (28 = 27 + 1, 52 = 2 · (25 + 1), 344 = 343 + 1), and widths of models.
TEST(Hadamard, RowsAreOrthogonal) {
  for (const int n :
       {1, 2, 4, 12, 20, 24, 28, 36, 40, 52, 60, 76, 108, 140, 148, 344, 576, 640, 896}) {
    const auto factors = FindHadamard(n);
    ASSERT_TRUE(factors.has_value()) << n;
    ASSERT_EQ(factors->size(), n);
    std::vector<double> h(static_cast<size_t>(n) * static_cast<size_t>(n));
    for (int i = 0; i < n; ++i) {
      double* row = h.data() + ptrdiff_t{i} * n;
      row[i] = 1;
      MultiplyByHadamard(*factors, row);
      for (int j = 0; j < n; ++j) ASSERT_EQ(std::fabs(row[j]), 1) << n;
      for (int k = 0; k <= i; ++k) {
        double product = 0;
        for (int j = 0; j < n; ++j)
          product +=
              row[j] * h[static_cast<size_t>(k) * static_cast<size_t>(n) + static_cast<size_t>(j)];
        ASSERT_EQ(product, k == i ? n : 0) << n << ": rows " << k << " and " << i;
      }
    }
  }
}

TEST(Hadamard, WidthsOfKnownModelsAreReached) {
  for (const int n : {1536, 2048, 2304, 2560, 2816,  3072,  3584,  4096,  4864,  5120,
                      6912, 8192, 8960, 9216, 11008, 13824, 14336, 18944, 27648, 28672}) {
    EXPECT_TRUE(FindHadamard(n).has_value()) << n;
  }
  for (const int n : {0, -4, 3, 6, 92, 172}) {
    EXPECT_FALSE(FindHadamard(n).has_value()) << n;
  }
}

TEST(Rotation, IsOrthogonalAndKeyedByTheSeed) {
  const auto rotation = Rotation::Make(24, 5);
  ASSERT_TRUE(rotation.has_value());
  std::vector<std::vector<double>> rows(24, std::vector<double>(24));
  for (size_t i = 0; i < 24; ++i) {
    rows[i][i] = 1;
    rotation->Apply(rows[i].data());
  }
  for (size_t i = 0; i < 24; ++i) {
    for (size_t j = 0; j < 24; ++j) {
      double product = 0;
      for (size_t k = 0; k < 24; ++k) product += rows[i][k] * rows[j][k];
      EXPECT_NEAR(product, i == j ? 1 : 0, 1e-14);
    }
  }
  std::vector<double> other(24);
  other[0] = 1;
  Rotation::Make(24, 6)->Apply(other.data());
  EXPECT_NE(other, rows[0]);
}

// Embedding → norm → linear → stream → norm → linear: the same answers, with gains that the
// rotation could not pass.
TEST(Rotation, AStreamMayBeRotated) {
  constexpr int kWidth = 36;
  ThreadPool pool(3);
  const auto rotation = Rotation::Make(kWidth, 1);
  auto embedding = Random(kWidth, 1);
  auto gain = Random(kWidth, 2);
  auto in = Random(size_t{10} * kWidth, 3);
  auto out = Random(size_t{kWidth} * 10, 4);
  auto out_bias = Random(kWidth, 5);
  auto head = Random(size_t{7} * kWidth, 6);
  const auto norm = [&](std::vector<double> x) {
    double squares = 0;
    for (const double value : x) squares += value * value;
    for (size_t i = 0; i < x.size(); ++i)
      x[i] *= double{gain[i]} / std::sqrt(squares / kWidth + 1e-6);
    return x;
  };
  const auto run = [&] {
    std::vector<double> stream(embedding.begin(), embedding.end());
    const auto inner = Apply(DenseView<const float>(in.data(), 10, kWidth), {}, norm(stream));
    const auto added = Apply(DenseView<const float>(out.data(), kWidth, 10), out_bias, inner);
    for (size_t i = 0; i < stream.size(); ++i) stream[i] += added[i];
    return Apply(DenseView<const float>(head.data(), 7, kWidth), {}, norm(stream));
  };
  const auto before = run();
  FoldNorm({.gain = gain}, DenseView(in.data(), 10, kWidth), {});
  FoldNorm({.gain = gain}, DenseView(head.data(), 7, kWidth), {});
  std::ranges::fill(gain, 1.0f);
  ExpectNear(run(), before, 1e-4);
  rotation->RotateInputs(DenseView(embedding.data(), 1, kWidth), pool);
  rotation->RotateInputs(DenseView(in.data(), 10, kWidth), pool);
  rotation->RotateInputs(DenseView(head.data(), 7, kWidth), pool);
  rotation->RotateOutputs(DenseView(out.data(), kWidth, 10), out_bias, pool);
  ExpectNear(run(), before, 1e-4);
}

TEST(Rotation, HeadsOfGroupedQueriesShareTheirs) {
  constexpr int kDim = 8;
  ThreadPool pool(2);
  const auto rotation = Rotation::Make(kDim, 2);
  auto v = Random(size_t{2} * kDim * 5, 1);  // 2 value heads
  auto bias = Random(2 * kDim, 2);
  auto o = Random(size_t{6} * 4 * kDim, 3);  // 4 query heads
  const std::vector<double> x = {1, 2, -1, 0.5, 3};
  const auto run = [&] {
    const auto values = Apply(DenseView<const float>(v.data(), 2 * kDim, 5), bias, x);
    std::vector<double> heads;
    for (size_t head = 0; head < 4; ++head) {
      heads.insert(heads.end(), values.begin() + static_cast<ptrdiff_t>(head / 2) * kDim,
                   values.begin() + static_cast<ptrdiff_t>(head / 2 + 1) * kDim);
    }
    return Apply(DenseView<const float>(o.data(), 6, 4 * kDim), {}, heads);
  };
  const auto before = run();
  RotateHeads(*rotation, {DenseView(v.data(), 2 * kDim, 5), bias, DenseView(o.data(), 6, 4 * kDim)},
              pool);
  ExpectNear(run(), before, 1e-4);
}

// A LayerNorm with gain and bias becomes an RMS norm without either.
TEST(Rotation, ALayerNormBecomesAnRmsNorm) {
  constexpr int kWidth = 12;
  auto stream = Random(kWidth, 1);
  const auto gain = Random(kWidth, 2);
  const auto norm_bias = Random(kWidth, 3);
  auto in = Random(size_t{4} * kWidth, 4);
  auto in_bias = Random(4, 5);
  auto out = Random(size_t{kWidth} * 3, 6);
  auto out_bias = Random(kWidth, 7);
  const std::vector<double> inner = {1, -2, 0.5};
  const auto state = [&] {
    auto x = Apply(DenseView<const float>(out.data(), kWidth, 3), out_bias, inner);
    for (size_t i = 0; i < x.size(); ++i) x[i] += double{stream[i]};
    return x;
  };
  const auto normed = [&](std::vector<double> x, bool layer) {
    double mean = 0;
    for (const double value : x) mean += layer ? value / kWidth : 0;
    double squares = 0;
    for (double& value : x) {
      value -= mean;
      squares += value * value;
    }
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] /= std::sqrt(squares / kWidth);
      if (layer) x[i] = x[i] * double{gain[i]} + double{norm_bias[i]};
    }
    return x;
  };
  const auto before =
      Apply(DenseView<const float>(in.data(), 4, kWidth), in_bias, normed(state(), true));
  RemoveRowMeans(DenseView(stream.data(), 1, kWidth));
  RemoveOutputMean(DenseView(out.data(), kWidth, 3), out_bias);
  FoldNorm({.gain = gain, .norm_bias = norm_bias}, DenseView(in.data(), 4, kWidth), in_bias);
  ExpectNear(Apply(DenseView<const float>(in.data(), 4, kWidth), in_bias, normed(state(), false)),
             before, 1e-4);
}

TEST(Rotation, PlansNameWhatIsDoneOrWhyNot) {
  ModelConfig config;
  config.architecture = "llama";
  config.width = 576;
  config.tied_embeddings = true;
  const auto llama = PlanRotation(config);
  ASSERT_TRUE(llama.has_value());
  EXPECT_EQ(llama->stream.size(), 7u);
  EXPECT_TRUE(llama->untie);
  EXPECT_FALSE(llama->layer_norm);

  config.architecture = "gpt2";
  config.width = 768;
  config.ffn = FfnKind::kPlain;
  config.norm = NormKind::kLayer;
  config.learned_positions = true;
  const auto gpt2 = PlanRotation(config);
  ASSERT_TRUE(gpt2.has_value());
  EXPECT_EQ(gpt2->stream.size(), 6u);
  EXPECT_TRUE(gpt2->layer_norm && gpt2->positions);

  config.architecture = "gemma3";
  config.post_norms = true;
  const auto gemma = PlanRotation(config);
  ASSERT_FALSE(gemma.has_value());
  EXPECT_NE(gemma.error().message.find("gemma3"), std::string::npos);
  config.post_norms = false;
  config.width = 172;
  EXPECT_FALSE(PlanRotation(config).has_value());
}

}  // namespace
}  // namespace nibble
