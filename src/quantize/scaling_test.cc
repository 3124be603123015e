// AWQ, SmoothQuant and where their scales go.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "platform/thread_pool.h"
#include "quantize/awq.h"
#include "quantize/fold.h"
#include "quantize/method_golden_test.h"
#include "quantize/smoothquant.h"

namespace nibble {
namespace {

using testing::MethodGolden;
using testing::RelativeDifference;

AwqSite SiteOf(const MethodGolden& golden) {
  return {.consumers = {golden.Matrix("w0"), golden.Matrix("w1")},
          .mean_magnitude = golden["x_mean"],
          .inputs = golden.Matrix("x")};
}

AwqOptions OptionsOf(bool duo) {
  AwqOptions options;
  options.grid.group = 32;
  options.grid.scale_type = ScaleType::kF32;
  options.duo_scaling = duo;
  return options;
}

TEST(Awq, ScalesAreThePublishedSearch) {
  const MethodGolden golden("awq");
  ThreadPool pool(2);
  for (const std::string name : {"duo", "plain"}) {
    const auto found = SearchAwqScales(SiteOf(golden), OptionsOf(name == "duo"), pool);
    ASSERT_TRUE(found.has_value()) << found.error().message;
    EXPECT_LT(RelativeDifference(found->losses, golden[name + ".losses"]), 1e-3) << name;
    EXPECT_EQ(std::lround(found->ratio * 20), std::lround(golden[name + ".best"][0])) << name;
    EXPECT_LT(RelativeDifference(found->scales, golden[name + ".scales"]), 2e-6) << name;
    EXPECT_LT(found->loss, found->loss_unscaled) << name;
  }
}

TEST(Awq, ACallersLossDecides) {
  const MethodGolden golden("awq");
  ThreadPool pool(1);
  // One that the scales of no ratio but r = 0.5 please: the eleventh call, the first being s = 1.
  int calls = 0;
  const auto loss = [&](std::span<const MatrixView<const float>> weights) -> Result<double> {
    EXPECT_EQ(weights.size(), 2u);
    EXPECT_EQ(weights[1].rows, 13);
    return ++calls == 12 ? 0.0 : 1.0;
  };
  const auto found = SearchAwqScales(SiteOf(golden), OptionsOf(false), pool, loss);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(calls, 21);
  EXPECT_EQ(found->ratio, 0.5);
  const auto fails = [](std::span<const MatrixView<const float>>) -> Result<double> {
    return BadInput("no such block");
  };
  EXPECT_FALSE(SearchAwqScales(SiteOf(golden), OptionsOf(false), pool, fails).has_value());
}

TEST(Awq, TheSameBitsForAnyNumberOfThreads) {
  const MethodGolden golden("awq");
  ThreadPool one(1);
  ThreadPool three(3);
  const auto a = SearchAwqScales(SiteOf(golden), OptionsOf(true), one);
  const auto b = SearchAwqScales(SiteOf(golden), OptionsOf(true), three);
  EXPECT_EQ(a->losses, b->losses);
  EXPECT_EQ(a->scales, b->scales);
}

TEST(Awq, ClipIsThePublishedSearch) {
  const MethodGolden golden("awq");
  ThreadPool pool(2);
  const auto found =
      SearchAwqClip(golden.Matrix("w0"), golden.Matrix("x"), OptionsOf(true).grid, pool);
  ASSERT_TRUE(found.has_value());
  ASSERT_EQ(found->size(), golden["clip"].size());
  int different = 0;
  int below = 0;
  for (size_t i = 0; i < found->size(); ++i) {
    different += (*found)[i] != golden["clip"][i] ? 1 : 0;
    float largest = 0;
    for (size_t c = 0; c < 32; ++c)
      largest = std::max(largest, std::fabs(golden["w0"][i * 32 + c]));
    below += (*found)[i] < largest ? 1 : 0;
  }
  EXPECT_EQ(different, 0);
  EXPECT_GT(below, 10);  // some groups clip

  std::vector<float> w = golden["w0"];
  ApplyClip(DenseView(w.data(), 24, 128), 32, *found);
  for (size_t i = 0; i < w.size(); ++i) ASSERT_LE(std::fabs(w[i]), (*found)[i / 32]);
}

TEST(Awq, RefusesWhatDoesNotFit) {
  const MethodGolden golden("awq");
  ThreadPool pool(1);
  AwqSite site = SiteOf(golden);
  const AwqOptions tensor = {.grid = {.bits = 4, .granularity = Granularity::kTensor}};
  EXPECT_FALSE(SearchAwqScales(site, tensor, pool).has_value());
  site.inputs.rows = 0;
  EXPECT_FALSE(SearchAwqScales(site, {}, pool).has_value());
  site = SiteOf(golden);
  site.mean_magnitude = site.mean_magnitude.first(5);
  EXPECT_FALSE(SearchAwqScales(site, {}, pool).has_value());
  site = SiteOf(golden);
  std::vector<float> x = golden["x"];
  x[200] = std::numeric_limits<float>::quiet_NaN();
  site.inputs.data = x.data();
  const auto found = SearchAwqScales(site, {}, pool);
  ASSERT_FALSE(found.has_value());
  EXPECT_NE(found.error().message.find("row 1 column 72"), std::string::npos);
  EXPECT_FALSE(
      SearchAwqClip(golden.Matrix("w0"), DenseView(x.data(), 10, 64), {}, pool).has_value());
}

TEST(SmoothQuant, ScalesAreThePublishedOnes) {
  const MethodGolden golden("smoothquant");
  ThreadPool pool(1);
  ChannelRange range;
  const auto x = golden.Matrix("x");
  range.Add({x.row(0), 20, x.cols, x.stride});
  range.Add({x.row(20), x.rows - 20, x.cols, x.stride});
  const MatrixView<const float> consumers[] = {golden.Matrix("w0"), golden.Matrix("w1")};
  for (const auto& [name, statistics] :
       {std::pair{"paper", SmoothStatistics::kPaper},
        std::pair{"llm-compressor", SmoothStatistics::kLlmCompressor}}) {
    for (const auto& [text, alpha] : {std::pair{".0.5", 0.5}, std::pair{".0.85", 0.85}}) {
      const auto found =
          SmoothScales(range, consumers, {.alpha = alpha, .statistics = statistics}, pool);
      ASSERT_TRUE(found.has_value()) << found.error().message;
      const auto& expected = golden[std::string(name) + text];
      ASSERT_EQ(found->size(), expected.size());
      for (size_t c = 0; c < expected.size(); ++c) {
        EXPECT_NEAR((*found)[c], expected[c], 2e-7 * expected[c]) << name << " " << c;
      }
    }
  }
  EXPECT_FALSE(SmoothScales(range, consumers, {.alpha = 1.5}, pool).has_value());
  EXPECT_FALSE(SmoothScales({}, consumers, {}, pool).has_value());
  std::vector<float> bad(40, 1.0f);
  bad[4] = std::numeric_limits<float>::quiet_NaN();
  range.Add(DenseView<const float>(bad.data(), 1, 40));
  const auto none = SmoothScales(range, consumers, {}, pool);
  ASSERT_FALSE(none.has_value());
  EXPECT_NE(none.error().message.find("channel 4"), std::string::npos);
}

std::vector<float> Random(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<double> Product(MatrixView<const float> w, const std::vector<double>& x) {
  std::vector<double> y(static_cast<size_t>(w.rows));
  for (int r = 0; r < w.rows; ++r) {
    for (int c = 0; c < w.cols; ++c)
      y[static_cast<size_t>(r)] += double{w.row(r)[c]} * x[static_cast<size_t>(c)];
  }
  return y;
}

TEST(Fold, LeavesTheFunctionAsItIs) {
  const auto s = [] {
    auto values = Random(12, 1);
    for (float& value : values) value = std::fabs(value) + 0.2f;
    return values;
  }();
  // A linear before: y = W2 (W1 x + b).
  auto w1 = Random(size_t{12} * 6, 2);
  auto b = Random(12, 3);
  auto w2 = Random(size_t{5} * 12, 4);
  const std::vector<double> x = {1, -2, 0.5, 3, 0.25, -1};
  const auto run = [&] {
    auto hidden = Product(DenseView<const float>(w1.data(), 12, 6), x);
    for (size_t i = 0; i < 12; ++i) hidden[i] += double{b[i]};
    return Product(DenseView<const float>(w2.data(), 5, 12), hidden);
  };
  const auto before = run();
  DivideRows(DenseView(w1.data(), 12, 6), b, s);
  ScaleColumns(DenseView(w2.data(), 5, 12), s);
  EXPECT_LT(RelativeDifference(run(), before), 1e-6);

  // A norm before: gain and bias, or a gain stored less 1.
  auto gain = Random(12, 5);
  auto shift = Random(12, 6);
  const auto old_gain = gain;
  const auto old_shift = shift;
  DivideNorm(gain, shift, s, false);
  for (size_t i = 0; i < 12; ++i) {
    EXPECT_NEAR(gain[i] * s[i], old_gain[i], 1e-6);
    EXPECT_NEAR(shift[i] * s[i], old_shift[i], 1e-6);
  }
  gain = old_gain;
  DivideNorm(gain, {}, s, true);
  for (size_t i = 0; i < 12; ++i) EXPECT_NEAR((1 + gain[i]) * s[i], 1 + old_gain[i], 1e-6);
}

TEST(Fold, GroupedQueriesShareTheScalesOfAValueHead) {
  const HeadGroups groups = {.heads = 4, .kv_heads = 2, .head_dim = 3};
  std::vector<float> statistics = {1, 2, 3, 3, 4, 5, 10, 10, 10, 20, 20, 20};
  EXPECT_FALSE(ScalesOfValues(statistics, groups).has_value());
  TieHeads(statistics, groups);
  EXPECT_EQ(statistics, (std::vector<float>{2, 3, 4, 2, 3, 4, 15, 15, 15, 15, 15, 15}));
  const auto values = ScalesOfValues(statistics, groups);
  ASSERT_TRUE(values.has_value());
  EXPECT_EQ(*values, (std::vector<float>{2, 3, 4, 15, 15, 15}));
}

}  // namespace
}  // namespace nibble
