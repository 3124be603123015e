#include "sched/draft_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace nibble {
namespace {

// 2, 4, 8, 16 rows cost 1.13, 1.36, 1.55, 2.1 single steps.
StepPrice MeasuredPrice() {
  return StepPrice({{1, 1}, {2, 1.13}, {4, 1.36}, {8, 1.55}, {16, 2.1}, {32, 3.8}}, 0, 0);
}

constexpr double kNoLimit = 1e9;

int Chosen(const StepPrice& price, int answers, const std::vector<double>& chances,
           double seconds = kNoLimit, int rows = 100) {
  const DraftOffer offer{.first = 10, .chances = chances};
  const StepLoad step{
      .rows = answers, .kv_tokens = 10 * answers, .logit_rows = answers, .kv_reads = 10 * answers};
  return ChooseDrafts(price, step, {.answers = answers, .rows = rows, .seconds = seconds},
                      std::span(&offer, 1))[0];
}

TEST(ChooseDrafts, TakesRowsThatPay) {
  const StepPrice price = MeasuredPrice();
  EXPECT_EQ(Chosen(price, 1, std::vector<double>(31, 1.0)), 31);  // 32 tokens for 3.8 steps
  EXPECT_EQ(Chosen(price, 1, std::vector<double>(31, 0.1)), 0);   // 1.1 tokens for 1.13 steps
  EXPECT_EQ(Chosen(price, 1, {0.14}), 0);                         // a gain below kDraftGain
  EXPECT_EQ(Chosen(price, 1, {0.3}), 1);
  EXPECT_EQ(Chosen(price, 1, {}), 0);
  const int some = Chosen(price, 1, std::vector<double>(31, 0.7));
  EXPECT_GE(some, 2);
  EXPECT_LE(some, 7);
}

TEST(ChooseDrafts, KeepsToRowsAndSeconds) {
  const StepPrice price = MeasuredPrice();
  const std::vector<double> sure(31, 1.0);
  EXPECT_EQ(Chosen(price, 1, sure, kNoLimit, 5), 5);
  EXPECT_EQ(Chosen(price, 1, sure, kNoLimit, 0), 0);
  EXPECT_EQ(Chosen(price, 1, sure, 1.36), 3);  // 4 rows
  EXPECT_EQ(Chosen(price, 1, sure, 1.0), 0);
}

TEST(ChooseDrafts, KnowsWhatADraftedTokenCosts) {
  const StepPrice price = MeasuredPrice();
  const std::vector<double> likely(8, 0.8);
  DraftOffer offer{.first = 1, .chances = likely};
  const DraftRoom room{.answers = 1, .rows = 100, .seconds = kNoLimit};
  const StepLoad step{.rows = 1, .kv_tokens = 1, .logit_rows = 1, .kv_reads = 1};
  EXPECT_GT(ChooseDrafts(price, step, room, std::span(&offer, 1))[0], 0);
  offer.cost_s = 1;  // as much as the model's own step
  EXPECT_EQ(ChooseDrafts(price, step, room, std::span(&offer, 1))[0], 0);
}

TEST(ChooseDrafts, WithoutPricesTakesWhatIsMoreLikelyThanNot) {
  EXPECT_EQ(Chosen(StepPrice(), 1, {0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9}), 6);  // 0.9^6 = 0.53
  EXPECT_EQ(Chosen(StepPrice(), 1, {0.4}), 0);
}

// Against trying every number of rows for every offer.
TEST(ChooseDrafts, IsTheBestOfAll) {
  std::mt19937 random(3);
  const auto uniform = [&] { return std::uniform_real_distribution<double>(0, 1)(random); };
  for (int round = 0; round < 60; ++round) {
    // Convex, as that of few rows is: else the order of worth need not hold the best.
    const StepPrice price({{1, 1}, {4, 1.1}, {8, 1.1 + uniform()}}, 0, 0);
    std::vector<std::vector<double>> chances(3);
    std::vector<DraftOffer> offers;
    for (auto& own : chances) {
      own.resize(random() % 3);
      for (double& chance : own) chance = uniform();
      offers.push_back({.first = 5, .chances = own});
    }
    const StepLoad step{.rows = 2, .kv_tokens = 10, .logit_rows = 2, .kv_reads = 10};
    const auto rate = [&](const std::vector<int>& rows) {
      double expected = 2;
      StepLoad load = step;
      for (size_t i = 0; i < rows.size(); ++i) {
        double worth = 1;
        for (int k = 0; k < rows[i]; ++k) expected += worth *= chances[i][static_cast<size_t>(k)];
        load.rows += rows[i];
      }
      return expected / price.Seconds(load);
    };
    double best = 0;
    for (size_t a = 0; a <= chances[0].size(); ++a) {
      for (size_t b = 0; b <= chances[1].size(); ++b) {
        for (size_t c = 0; c <= chances[2].size(); ++c) {
          best =
              std::max(best, rate({static_cast<int>(a), static_cast<int>(b), static_cast<int>(c)}));
        }
      }
    }
    const std::vector<int> chosen =
        ChooseDrafts(price, step, {.answers = 2, .rows = 100, .seconds = kNoLimit}, offers);
    EXPECT_GE(rate(chosen), std::max(best / kDraftGain, rate({0, 0, 0})) - 1e-12) << round;
    EXPECT_TRUE(rate(chosen) > best - 1e-9 || chosen == std::vector<int>({0, 0, 0})) << round;
  }
}

}  // namespace
}  // namespace nibble
