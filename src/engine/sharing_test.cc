// Requests that share pages: choices, the prefix cache, best_of. One bad one harms nobody.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "engine/core_fixture.h"
#include "engine/fit_step_price.h"

namespace nibble {
namespace {

using testing::CoreFixture;
using testing::CoreSetup;
using testing::TokensOf;

CoreSetup Sharing(std::vector<PoolSpec> pools = CoreSetup{}.pools, bool cache = true) {
  return {.limits = {.max_rows = 64}, .pools = std::move(pools), .prefix_cache = cache};
}

Request Random(int prompt, int answer, uint32_t seed) {
  std::mt19937 random(seed);
  Request request{.max_tokens = answer};
  for (int i = 0; i < prompt; ++i) {
    request.prompt.emplace_back(static_cast<int>(random() % testing::kCoreVocabulary));
  }
  request.sampling.temperature = 1;
  request.sampling.seed = seed;
  return request;
}

// The forms of pages that a fork and a hit may meet.
std::vector<std::vector<PoolSpec>> AllPools() {
  return {{{.pages = 200}},
          {{.pages = 200}, {.pages = 200, .window = 50}},
          {{.pages = 200, .open_pages = 100}},
          {{.pages = 200, .unit_pages = 4, .open_pages = 100}},
          {{.pages = 200, .unit_pages = 4, .open_pages = 100},
           {.pages = 200},
           {.pages = 200, .window = 70, .unit_pages = 4, .open_pages = 100}}};
}

TEST(Choices, AreTheSameAsOneByOneAndShareThePrompt) {
  for (const std::vector<PoolSpec>& pools : AllPools()) {
    for (const bool cache : {false, true}) {
      for (const int prompt : {1, 31, 64, 150}) {
        Request request = Random(prompt, 40, 7);
        request.n = 4;
        CoreFixture fixture(Sharing(pools, cache));
        const std::vector<Answer> answers = fixture.AskAll(request);
        // Where a prompt ends with a sealed page its open form is gone, and the others compute
        // that page again.
        const bool sealed = prompt == 64 && pools[0].open_pages > 0 && pools[0].unit_pages == 1;
        const int shared = sealed ? 32 : prompt - 1;
        // The prompt once, of each other choice its last token, and the answers.
        EXPECT_EQ(fixture.core().scheduler().counters().rows,
                  prompt + 3 * (prompt - shared) + 4 * 39);
        for (int choice = 1; choice < 4; ++choice) {
          EXPECT_EQ(answers[choice].finish.usage.cached_prompt_tokens, shared);
        }
        // Alone: as a choice of a request that shares nothing with anybody.
        for (int choice = 0; choice < 4; ++choice) {
          Request all = request;
          CoreFixture apart(Sharing(pools, false));
          all.n = choice + 1;
          EXPECT_EQ(TokensOf(apart.AskAll(all)[choice]), TokensOf(answers[choice])) << choice;
        }
        request.n = 1;
        EXPECT_EQ(TokensOf(CoreFixture(Sharing(pools, false)).AskAll(request)[0]),
                  TokensOf(answers[0]));
        EXPECT_NE(TokensOf(answers[0]), TokensOf(answers[1]));
      }
    }
  }
}

TEST(PrefixCache, AnswersAreTheSameWithItAndWithout) {
  for (const std::vector<PoolSpec>& pools : AllPools()) {
    CoreFixture with(Sharing(pools, true));
    int cached = 0;
    for (uint32_t i = 0; i < 12; ++i) {
      Request request = Random(200, 30, 1);  // a common beginning
      request.prompt.resize(100 + 31 * (i % 4));
      for (const TokenId token : Random(20, 1, 100 + i % 3).prompt) request.prompt.push_back(token);
      request.sampling.seed = i;
      const Answer answer = with.AskAll(request)[0];
      cached += answer.finish.usage.cached_prompt_tokens;
      EXPECT_EQ(TokensOf(answer), TokensOf(CoreFixture(Sharing(pools, false)).AskAll(request)[0]))
          << i;
    }
    EXPECT_GT(cached, 300);
  }
}

TEST(PrefixCache, CountsWhatItGave) {
  CoreFixture fixture(Sharing());
  const Request request = Random(100, 2, 3);
  EXPECT_EQ(fixture.AskAll(request)[0].finish.usage.cached_prompt_tokens, 0);
  EXPECT_EQ(fixture.AskAll(request)[0].finish.usage.cached_prompt_tokens, 96);
  EXPECT_EQ(fixture.core().scheduler().counters().cached_tokens, 96);
}

TEST(PrefixCache, ARequestThatFailsHarmsNobodyWithItsPrefix) {
  CoreFixture fixture(Sharing());
  fixture.executor().poison = TokenId{13};
  Request good = Random(100, 10, 3);
  for (TokenId& token : good.prompt) token = TokenId{token.value() % 13};
  Request bad = good;
  bad.prompt.back() = TokenId{13};
  good.sampling.temperature = bad.sampling.temperature = 0;
  for (int i = 0; i < 3; ++i) {
    auto failing = fixture.Submit(bad);
    const Answer answer = fixture.AskAll(good)[0];
    EXPECT_EQ(Collect(*failing)[0].finish.reason, FinishReason::kError);
    CoreFixture alone(Sharing());
    alone.executor().poison = TokenId{13};
    EXPECT_EQ(TokensOf(answer), TokensOf(alone.AskAll(good)[0]));
  }
}

TEST(Choices, CancelEndsAllOfThemAndFreesTheirPages) {
  CoreFixture fixture(Sharing());
  Request request = Random(100, 400, 5);
  request.n = 5;
  auto stream = fixture.Submit(request);
  for (int i = 0; i < 10; ++i) fixture.Step();
  fixture.core().Cancel(fixture.last_id());
  EXPECT_EQ(fixture.core().scheduler().book().pool(0).used_pages(), 0);
  EXPECT_TRUE(fixture.core().idle());
  for (const Answer& answer : Collect(*stream, 5)) {
    EXPECT_EQ(answer.finish.reason, FinishReason::kCancelled);
  }
}

TEST(BestOf, GivesThoseWithTheHighestMeanLogprob) {
  Request request = Random(50, 12, 9);
  request.logprobs = 0;
  request.n = 6;
  const std::vector<Answer> all = CoreFixture(Sharing()).AskAll(request);
  std::vector<std::pair<double, std::vector<int>>> ranked;
  for (const Answer& answer : all) {
    double sum = 0;
    for (const TokenEvent& token : answer.tokens) sum += token.logprob;
    ranked.emplace_back(sum / static_cast<double>(answer.tokens.size()), TokensOf(answer));
  }
  std::ranges::stable_sort(ranked, [](auto& a, auto& b) { return a.first > b.first; });
  request.n = 2;
  request.best_of = 6;
  request.logprobs = -1;
  const std::vector<Answer> best = CoreFixture(Sharing()).AskAll(request);
  ASSERT_EQ(best.size(), 2U);
  EXPECT_EQ(TokensOf(best[0]), ranked[0].second);
  EXPECT_EQ(TokensOf(best[1]), ranked[1].second);
  EXPECT_EQ(best[0].tokens[0].logprob, 0);  // nobody asked for them
  EXPECT_EQ(best[1].finish.choice, 1);
  request.best_of = 1;
  EXPECT_FALSE(CoreFixture(Sharing()).core().Check(request));
  request.best_of = 129;
  EXPECT_FALSE(CoreFixture(Sharing()).core().Check(request));
}

// A step takes 10 s, 1 s a row beyond the eighth, and half a second for logits.
TEST(FitStepPrice, FindsTheTableOfAModelThatKeepsIt) {
  const std::vector<PoolSpec> pools = {{.pages = 100}};
  testing::FakeExecutor executor(testing::kCoreVocabulary, pools);
  double now = 0;
  executor.before = [&](const ExecuteInput& input) -> Status {
    now += 10 + std::max(0, static_cast<int>(input.tokens.size()) - 8) +
           0.5 * static_cast<double>(input.logit_rows.size());
    return {};
  };
  const FittedStepPrice fitted = FitStepPrice(executor, {.pools = pools,
                                                         .max_rows = 512,
                                                         .max_context = 400,
                                                         .clock = [&] { return now; },
                                                         .patience_s = 1e9});
  const StepPrice& price = fitted.price;
  ASSERT_EQ(fitted.touched.size(), 1U);
  EXPECT_EQ(fitted.touched[0].pages,
            256 / kPageTokens + 1);  // 1, 8, 16 … 256 rows: 512 are too many
  ASSERT_TRUE(price.known());
  // KV: 1 byte a token beside 1,000 of weights read in the first step's 10.5 s.
  EXPECT_NEAR(price.Seconds({8, 36, 1}), 10.5, 0.5);
  EXPECT_NEAR(price.Seconds({8, 36, 8}), 14, 0.5);
  EXPECT_NEAR(price.Seconds({32, 32 * 33 / 2, 1}), 34.5, 0.5);
  EXPECT_NEAR(price.Seconds(LoadOf(1000, 1, true)) - price.Seconds(LoadOf(0, 1, true)), 10.5, 0.1);
  executor.before = [](const ExecuteInput&) { return Status(BadInput("no")); };
  EXPECT_FALSE(
      FitStepPrice(executor, {.pools = pools, .clock = [&] { return now; }}).price.known());
}

// What attention of rows behind many positions takes is measured, not taken from the bytes.
TEST(FitStepPrice, MeasuresRowsAtADepth) {
  const std::vector<PoolSpec> pools = {{.pages = 100}};
  testing::FakeExecutor executor(testing::kCoreVocabulary, pools);
  double now = 0;
  double row_token_s = 0.002;
  executor.before = [&](const ExecuteInput& input) -> Status {
    const StepLoad load = LoadOf(input.spans[0].first, input.spans[0].rows, true);
    now += 10 + row_token_s * static_cast<double>(load.kv_tokens);
    return {};
  };
  const FitInput input{.pools = pools,
                       .max_rows = 512,
                       .max_context = 3000,
                       .clock = [&] { return now; },
                       .patience_s = 1e9};
  const auto chunk = [](const StepPrice& price) {
    return price.Seconds(LoadOf(2000, 64, true)) - price.Seconds(LoadOf(0, 64, true));
  };
  // One row reads 0.01 s of bytes a position: 16 together take less than 16 alone.
  EXPECT_NEAR(chunk(FitStepPrice(executor, input).price), 0.002 * 64 * 2000, 30);
  row_token_s = 0.05;  // and now more
  EXPECT_NEAR(chunk(FitStepPrice(executor, input).price), 0.05 * 64 * 2000, 100);
}

}  // namespace
}  // namespace nibble
