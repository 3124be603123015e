#include "eval/divergence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/engine.h"
#include "eval/fixture_test.h"
#include "eval/perplexity.h"
#include "eval/statistics.h"
#include "tests/support/test_data.h"
#include "tokenizer/tokenizer.h"

namespace nibble {
namespace {

using testing::Logprobs;
using testing::OpenExact;

class DivergenceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    base_ = OpenExact("models/shakespeare", KvFormat::kF32);
    const auto ids = base_->tokenizer().Encode(
        testing::ReadFile(testing::SourcePath("examples/shakespeare/input.txt")).substr(0, 400));
    ASSERT_TRUE(ids);
    ids_ = *ids;
    ids_.resize(300);
    options_.windows.context = 100;
  }

  std::unique_ptr<Engine> base_;
  std::vector<TokenId> ids_;
  DivergenceOptions options_;
};

TEST_F(DivergenceTest, EveryPredictionIsThatOfTheFormula) {
  // Steps of 7 rows against steps of 512: the blocks that meet differ in size.
  const auto candidate = OpenExact("models/shakespeare", KvFormat::kInt4, 7);
  const auto samples = MeasureDivergence(*candidate, *base_, ids_, options_);
  ASSERT_TRUE(samples) << samples.error().message;
  EXPECT_EQ(samples->chunks, 3);
  ASSERT_EQ(samples->size(), 3 * 49);
  size_t at = 0;
  int64_t same = 0;
  for (size_t window = 0; window < 3; ++window) {
    const std::span<const TokenId> ids(ids_.data() + 100 * window, 100);
    const auto want = Logprobs(*base_, ids);
    const auto got = Logprobs(*candidate, ids);
    for (size_t row = 50; row < 99; ++row, ++at) {
      double divergence = 0;
      for (size_t i = 0; i < want[row].size(); ++i) {
        divergence += std::exp(want[row][i]) * (want[row][i] - got[row][i]);
      }
      const auto next = static_cast<size_t>(ids[row + 1].value());
      EXPECT_NEAR(samples->divergence[at], divergence, 1e-6);
      EXPECT_NEAR(samples->base_loss[at], -want[row][next], 1e-6);
      EXPECT_NEAR(samples->candidate_loss[at], -got[row][next], 1e-6);
      EXPECT_NEAR(samples->probability[at], std::exp(got[row][next]) - std::exp(want[row][next]),
                  1e-6);
      EXPECT_EQ(samples->position[at], static_cast<int>(row));
      same += std::ranges::max_element(want[row]) - want[row].begin() ==
                      std::ranges::max_element(got[row]) - got[row].begin()
                  ? 1
                  : 0;
    }
  }
  EXPECT_EQ(samples->same_top, same);
  EXPECT_GT(MeanOf(samples->divergence).mean, 1e-5);  // int4 is not f32
}

TEST_F(DivergenceTest, AModelDoesNotDivergeFromItself) {
  const auto same = OpenExact("models/shakespeare", KvFormat::kF32);
  const auto samples = MeasureDivergence(*same, *base_, ids_, options_);
  ASSERT_TRUE(samples) << samples.error().message;
  const DivergenceResult result = Summarise(*samples);
  EXPECT_EQ(result.divergence_sorted.front(), 0);
  EXPECT_EQ(result.divergence_sorted.back(), 0);
  EXPECT_EQ(result.same_top.mean, 1);
  EXPECT_EQ(result.ppl_ratio.mean, 1);
  EXPECT_EQ(result.correlation, 1);
  PerplexityOptions perplexity;
  perplexity.windows = options_.windows;
  const auto alone = MeasurePerplexity(*base_, ids_, perplexity);
  ASSERT_TRUE(alone);
  EXPECT_NEAR(result.ppl.mean, alone->perplexity, 1e-9 * alone->perplexity);
  EXPECT_NEAR(result.ppl.se, alone->standard_error, 1e-9 * alone->standard_error);
}

TEST_F(DivergenceTest, ErrorsOfEitherSideEndBoth) {
  const auto candidate = OpenExact("models/shakespeare", KvFormat::kInt4);
  auto bad = ids_;
  bad[150] = TokenId{65000};
  const auto wrong_id = MeasureDivergence(*candidate, *base_, bad, options_);
  ASSERT_FALSE(wrong_id);
  EXPECT_NE(wrong_id.error().message.find("65000"), std::string::npos);
  options_.windows.context = 1 << 20;
  EXPECT_FALSE(MeasureDivergence(*candidate, *base_, ids_, options_));
}

DivergenceSamples MadeUp(int n, double shift, double noise) {
  DivergenceSamples samples;
  for (int i = 0; i < n; ++i) {
    samples.divergence.push_back(i);
    samples.base_loss.push_back(2 + i % 3);
    samples.candidate_loss.push_back(2 + i % 3 + shift + (i % 2 == 0 ? noise : -noise));
    samples.probability.push_back(i % 2 == 0 ? 0.1 : -0.1);
    samples.position.push_back(i % 80);
  }
  samples.same_top = n / 4;
  samples.chunks = 1;
  return samples;
}

TEST(Divergence, SummaryOfKnownNumbers) {
  const DivergenceResult result = Summarise(MadeUp(400, 0.01, 0.001));
  EXPECT_EQ(result.tokens, 400);
  EXPECT_NEAR(result.divergence.mean, 199.5, 1e-9);
  EXPECT_NEAR(Quantile(result.divergence_sorted, 0.5), 199.5, 1e-9);
  EXPECT_NEAR(Quantile(result.divergence_sorted, 0.99), 395.01, 1e-9);
  EXPECT_NEAR(result.ln_ratio.mean, 0.01, 1e-12);
  EXPECT_NEAR(result.ln_ratio.se, 0.001 / std::sqrt(399.0), 1e-9);
  EXPECT_NEAR(result.ppl_ratio.mean, std::exp(0.01), 1e-12);
  EXPECT_NEAR(result.same_top.mean, 0.25, 1e-12);
  EXPECT_NEAR(result.same_top.se, std::sqrt(0.25 * 0.75 / 399), 1e-12);
  EXPECT_NEAR(result.rms_probability.mean, 0.1, 1e-12);
  ASSERT_EQ(result.depths.size(), 8U);
  EXPECT_EQ(result.depths[1].from, 10);
  EXPECT_EQ(result.depths[1].to, 20);
  EXPECT_EQ(std::accumulate(result.depths.begin(), result.depths.end(), int64_t{0},
                            [](int64_t sum, const auto& d) { return sum + d.tokens; }),
            400);
}

TEST(Divergence, VerdictsInWords) {
  EXPECT_EQ(Verdict(Summarise(MadeUp(400, 0.01, 0.001))), "worse, 95%: +1.01% ± 0.01% perplexity");
  EXPECT_EQ(Verdict(Summarise(MadeUp(400, -0.01, 0.001))),
            "better, 95%: -1.00% ± 0.01% perplexity");
  EXPECT_EQ(Verdict(Summarise(MadeUp(400, 0, 0.001))),
            "no difference seen: +0.00% ± 0.01% perplexity");
  // Twice the error wanted: four times the tokens, three times more.
  const std::string unsure = Verdict(Summarise(MadeUp(401, 0, 0.1021)));
  EXPECT_NE(unsure.find("1300 more tokens would settle 0.5%"), std::string::npos) << unsure;
}

}  // namespace
}  // namespace nibble
