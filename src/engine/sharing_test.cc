// Requests that share pages: choices, the prefix cache, best_of. One bad one harms nobody.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>

#include "engine/engine_core.h"
#include "engine/event_stream.h"
#include "engine/fake_executor.h"
#include "engine/fit_step_price.h"
#include "kernels/kernel_table.h"
#include "kv/invariants.h"

namespace nibble {
namespace {

constexpr int kWords = 40;

// A core over a fake model, driven by hand.
class SharingFixture {
 public:
  explicit SharingFixture(std::vector<PoolSpec> pools = {{.pages = 200},
                                                         {.pages = 200, .window = 50}},
                          bool cache = true)
      : tokenizer_(testing::ListTokenizer(std::vector<std::string>(kWords, "x"))),
        executor_(kWords, pools),
        core_(executor_, tokenizer_, KernelsFor(Isa::kScalar),
              {.max_context = 1000,
               .limits = {.max_rows = 64},
               .pools = pools,
               .pages = {.prefix_cache = cache},
               .clock = [this] { return time_ += 1; }}) {}

  std::shared_ptr<EventStream> Submit(Request request) {
    auto stream = std::make_shared<EventStream>(request.n);
    const auto accepted = core_.Accept(std::move(request));
    EXPECT_TRUE(accepted) << accepted.error().message;
    core_.Start(RequestId{++last_id_}, *accepted, stream, time_);
    return stream;
  }
  bool Step() {
    const bool stepped = core_.RunStep();
    EXPECT_EQ(FindPageProblem(core_.scheduler().book(), core_.scheduler().AllPages()).value_or(""),
              "");
    return stepped;
  }
  std::vector<Answer> Ask(Request request) {
    const int n = request.n;
    auto stream = Submit(std::move(request));
    while (Step()) {
    }
    return Collect(*stream, n);
  }
  EngineCore& core() { return core_; }
  testing::FakeExecutor& executor() { return executor_; }
  RequestId last_id() const { return RequestId{last_id_}; }

 private:
  double time_ = 0;
  uint64_t last_id_ = 0;
  Tokenizer tokenizer_;
  testing::FakeExecutor executor_;
  EngineCore core_;
};

Request Random(int prompt, int answer, uint32_t seed) {
  std::mt19937 random(seed);
  Request request{.max_tokens = answer};
  for (int i = 0; i < prompt; ++i) {
    request.prompt.emplace_back(static_cast<int>(random() % kWords));
  }
  request.sampling.temperature = 1;
  request.sampling.seed = seed;
  return request;
}

std::vector<int> IdsOf(const Answer& answer) {
  std::vector<int> ids;
  for (const TokenEvent& event : answer.tokens) ids.push_back(event.id.value());
  return ids;
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
        SharingFixture fixture(pools, cache);
        const std::vector<Answer> answers = fixture.Ask(request);
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
          SharingFixture apart(pools, false);
          all.n = choice + 1;
          EXPECT_EQ(IdsOf(apart.Ask(all)[choice]), IdsOf(answers[choice])) << choice;
        }
        request.n = 1;
        EXPECT_EQ(IdsOf(SharingFixture(pools, false).Ask(request)[0]), IdsOf(answers[0]));
        EXPECT_NE(IdsOf(answers[0]), IdsOf(answers[1]));
      }
    }
  }
}

TEST(PrefixCache, AnswersAreTheSameWithItAndWithout) {
  for (const std::vector<PoolSpec>& pools : AllPools()) {
    SharingFixture with(pools, true);
    int cached = 0;
    for (uint32_t i = 0; i < 12; ++i) {
      Request request = Random(200, 30, 1);  // a common beginning
      request.prompt.resize(100 + 31 * (i % 4));
      for (const TokenId token : Random(20, 1, 100 + i % 3).prompt) request.prompt.push_back(token);
      request.sampling.seed = i;
      const Answer answer = with.Ask(request)[0];
      cached += answer.finish.usage.cached_prompt_tokens;
      EXPECT_EQ(IdsOf(answer), IdsOf(SharingFixture(pools, false).Ask(request)[0])) << i;
    }
    EXPECT_GT(cached, 300);
  }
}

TEST(PrefixCache, CountsWhatItGave) {
  SharingFixture fixture;
  const Request request = Random(100, 2, 3);
  EXPECT_EQ(fixture.Ask(request)[0].finish.usage.cached_prompt_tokens, 0);
  EXPECT_EQ(fixture.Ask(request)[0].finish.usage.cached_prompt_tokens, 96);
  EXPECT_EQ(fixture.core().scheduler().counters().cached_tokens, 96);
}

TEST(PrefixCache, ARequestThatFailsHarmsNobodyWithItsPrefix) {
  SharingFixture fixture;
  fixture.executor().poison = TokenId{13};
  Request good = Random(100, 10, 3);
  for (TokenId& token : good.prompt) token = TokenId{token.value() % 13};
  Request bad = good;
  bad.prompt.back() = TokenId{13};
  good.sampling.temperature = bad.sampling.temperature = 0;
  for (int i = 0; i < 3; ++i) {
    auto failing = fixture.Submit(bad);
    const Answer answer = fixture.Ask(good)[0];
    EXPECT_EQ(Collect(*failing)[0].finish.reason, FinishReason::kError);
    SharingFixture alone;
    alone.executor().poison = TokenId{13};
    EXPECT_EQ(IdsOf(answer), IdsOf(alone.Ask(good)[0]));
  }
}

TEST(Choices, CancelEndsAllOfThemAndFreesTheirPages) {
  SharingFixture fixture;
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
  const std::vector<Answer> all = SharingFixture().Ask(request);
  std::vector<std::pair<double, std::vector<int>>> ranked;
  for (const Answer& answer : all) {
    double sum = 0;
    for (const TokenEvent& token : answer.tokens) sum += token.logprob;
    ranked.emplace_back(sum / static_cast<double>(answer.tokens.size()), IdsOf(answer));
  }
  std::ranges::stable_sort(ranked, [](auto& a, auto& b) { return a.first > b.first; });
  request.n = 2;
  request.best_of = 6;
  request.logprobs = -1;
  const std::vector<Answer> best = SharingFixture().Ask(request);
  ASSERT_EQ(best.size(), 2U);
  EXPECT_EQ(IdsOf(best[0]), ranked[0].second);
  EXPECT_EQ(IdsOf(best[1]), ranked[1].second);
  EXPECT_EQ(best[0].tokens[0].logprob, 0);  // nobody asked for them
  EXPECT_EQ(best[1].finish.choice, 1);
  request.best_of = 1;
  EXPECT_FALSE(SharingFixture().core().Check(request));
  request.best_of = 129;
  EXPECT_FALSE(SharingFixture().core().Check(request));
}

// A step takes 10 s, 1 s a row beyond the eighth, and half a second for logits.
TEST(FitStepPrice, FindsTheTableOfAModelThatKeepsIt) {
  const std::vector<PoolSpec> pools = {{.pages = 100}};
  testing::FakeExecutor executor(kWords, pools);
  double now = 0;
  executor.before = [&](const ExecuteInput& input) -> Status {
    now += 10 + std::max(0, static_cast<int>(input.tokens.size()) - 8) +
           0.5 * static_cast<double>(input.logit_rows.size());
    return {};
  };
  const StepPrice price = FitStepPrice(executor, {.pools = pools,
                                                  .max_rows = 512,
                                                  .max_context = 400,
                                                  .clock = [&] { return now; },
                                                  .patience_s = 1e9});
  ASSERT_TRUE(price.known());
  // KV: 1 byte a token beside 1,000 of weights read in the first step's 10.5 s.
  EXPECT_NEAR(price.Seconds({8, 36, 1}), 10.5, 0.5);
  EXPECT_NEAR(price.Seconds({8, 36, 8}), 14, 0.5);
  EXPECT_NEAR(price.Seconds({32, 32 * 33 / 2, 1}), 34.5, 0.5);
  EXPECT_GT(price.Seconds({1, 1001, 1}), 20);
  executor.before = [](const ExecuteInput&) { return Status(BadInput("no")); };
  EXPECT_FALSE(FitStepPrice(executor, {.pools = pools, .clock = [&] { return now; }}).known());
}

}  // namespace
}  // namespace nibble
