#include "quantize/outliers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "platform/thread_pool.h"
#include "quantize/rtn.h"

namespace nibble {
namespace {

constexpr int kRows = 37, kCols = 256;

// A view of a stored F32 matrix.
struct Stored {
  explicit Stored(std::vector<float> given) : values(std::move(given)) {
    tensor.name = "w";
    tensor.format = Format::kF32;
    tensor.rank = 2;
    tensor.shape = {kRows, kCols};
    tensor.bytes = std::as_bytes(std::span(values));
    view = {.name = "w", .tensor = &tensor, .values = {}};
  }
  std::vector<float> values;
  SourceTensor tensor;
  TensorView view;
};

std::vector<float> NormalValues() {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 0.02F);
  std::vector<float> out(size_t{kRows} * kCols);
  for (float& value : out) value = normal(random);
  return out;
}

// Mean |ŵ − w| / mean |w| with the codes of QuantizeRtn.
double RtnError(const std::vector<float>& w, int bits, Granularity granularity, int group) {
  ThreadPool pool(1);
  const GridSpec spec = {.bits = bits,
                         .granularity = granularity,
                         .group = group,
                         .symmetric = true,
                         .convention = GridConvention::kSmoothQuant,
                         .scale_type = ScaleType::kF32};
  std::vector<float> back(w.size());
  Dequantize(QuantizeRtn(DenseView(w.data(), kRows, kCols), spec, pool).value(),
             DenseView(back.data(), kRows, kCols), pool);
  double error = 0, magnitude = 0;
  for (size_t i = 0; i < w.size(); ++i) {
    error += std::fabs(double{back[i]} - w[i]);
    magnitude += std::fabs(double{w[i]});
  }
  return error / magnitude;
}

TEST(Outliers, ErrorsAreThoseOfRounding) {
  ThreadPool pool(2);
  const Stored w(NormalValues());
  const TensorOutliers found = FindOutliers(w.view, pool).value();
  const std::array<std::pair<Granularity, int>, kScaleSharings> ways = {
      {{Granularity::kTensor, kCols},
       {Granularity::kChannel, kCols},
       {Granularity::kGroup, 128},
       {Granularity::kGroup, 64},
       {Granularity::kGroup, 32}}};
  for (size_t i = 0; i < ways.size(); ++i) {
    const auto [granularity, group] = ways[i];
    EXPECT_NEAR(found.errors.int8[i], RtnError(w.values, 8, granularity, group), 1e-6) << i;
    EXPECT_NEAR(found.errors.int4[i], RtnError(w.values, 4, granularity, group), 1e-6) << i;
  }
  EXPECT_FALSE(found.DestroyedByOneScale());
}

TEST(Outliers, OneWeightIsFoundAndItsDamage) {
  ThreadPool pool(3);
  std::vector<float> values = NormalValues();
  values[size_t{12} * kCols + 200] = -10;
  const Stored w(values);
  const TensorOutliers found = FindOutliers(w.view, pool).value();
  EXPECT_NEAR(found.typical, 0.0167, 0.001);
  EXPECT_DOUBLE_EQ(found.ratio, 10 / found.typical);
  ASSERT_EQ(found.outputs.worst.size(), 8u);
  EXPECT_EQ(found.outputs.worst[0].channel, 12);
  EXPECT_EQ(found.inputs.worst[0].channel, 200);
  EXPECT_DOUBLE_EQ(found.inputs.worst[0].ratio, found.ratio);
  EXPECT_LT(found.inputs.worst[1].ratio, 8);
  EXPECT_LT(found.outputs.median, 5);
  EXPECT_TRUE(found.DestroyedByOneScale());
  EXPECT_GT(found.errors.int8[0], 0.8);
  EXPECT_LT(found.errors.int8[1], 0.05);
}

TEST(Outliers, ZerosAndEmptyMatrices) {
  ThreadPool pool(1);
  const Stored w(std::vector<float>(size_t{kRows} * kCols));
  const TensorOutliers found = FindOutliers(w.view, pool).value();
  EXPECT_EQ(found.ratio, 0);
  EXPECT_EQ(found.errors.int8[0], 0);
  EXPECT_FALSE(found.DestroyedByOneScale());
}

TEST(Outliers, NamesWhatIsNotFinite) {
  ThreadPool pool(1);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    std::vector<float> values = NormalValues();
    values[size_t{3} * kCols + 7] = bad;
    const Stored w(values);
    const auto found = FindOutliers(w.view, pool);
    ASSERT_FALSE(found.has_value());
    EXPECT_NE(found.error().message.find("'w' row 3 column 7"), std::string::npos);
  }
}

TEST(ActivationOutliers, FindsTheChannelWhateverTheSteps) {
  std::vector<float> x = NormalValues();  // rows are tokens
  for (float& value : x) value *= 50;     // N(0, 1)
  for (int r = 0; r < kRows; ++r) x[static_cast<size_t>(r * kCols + 31)] *= 100;
  ActivationTap whole, steps;
  whole.Input(1, "qkv", DenseView<const float>(x.data(), kRows, kCols));
  whole.Input(-1, "head", DenseView<const float>(x.data(), 1, kCols));
  steps.Input(-1, "head", DenseView<const float>(x.data(), 1, kCols));
  for (int r = 0; r < kRows; ++r) {
    steps.Input(1, "qkv", DenseView<const float>(x.data() + r * kCols, 1, kCols));
  }
  const auto found = whole.Finish(), again = steps.Finish();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].layer, 1);
  EXPECT_EQ(found[1].layer, -1);
  EXPECT_EQ(found[0].tokens, kRows);
  EXPECT_EQ(found[0].channels.worst[0].channel, 31);
  EXPECT_GT(found[0].ratio, 100);
  EXPECT_EQ(found[0].above_six, 1);
  EXPECT_GT(found[0].errors.int8[0], found[0].errors.int8[4]);
  EXPECT_EQ(found[0].errors.int8, again[0].errors.int8);
  EXPECT_EQ(found[0].typical, again[0].typical);
}

}  // namespace
}  // namespace nibble
