#include "engine/model_drafter.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "engine/core_fixture.h"
#include "engine/ngram_drafter.h"
#include "engine/same_vocabulary.h"
#include "engine/two_drafters.h"

namespace nibble {
namespace {

using testing::CoreSetup;
using testing::TokensOf;
using Fixture = testing::CoreFixture;

constexpr int kVocabulary = testing::kCoreVocabulary;

// A model that is right up to some noise.
class NoisyExecutor : public Executor {
 public:
  NoisyExecutor(std::span<const PoolSpec> pools, float noise)
      : model_(kVocabulary, pools), noise_(noise) {}

  int vocabulary() const override { return kVocabulary; }
  size_t WeightBytesPerStep() const override { return 10; }
  double KvBytesRead(int position) const override { return position; }
  Status Execute(const ExecuteInput& input, LogitsSink& sink) override {
    rows += static_cast<int64_t>(input.tokens.size());
    if (fails) return Fail(ErrorKind::kIo, "broken");
    NoisySink noisy(*this, sink);
    return model_.Execute(input, noisy);
  }

  bool fails = false;
  int64_t rows = 0;

 private:
  class NoisySink : public LogitsSink {
   public:
    NoisySink(NoisyExecutor& owner, LogitsSink& sink) : owner_(owner), sink_(sink) {}
    void Rows(int first, MatrixView<float> logits) override {
      for (int r = 0; r < logits.rows; ++r) {
        for (float& x : logits.row_span(r)) {
          x += owner_.noise_ * std::uniform_real_distribution<float>(-1, 1)(owner_.random_);
        }
      }
      sink_.Rows(first, logits);
    }

   private:
    NoisyExecutor& owner_;
    LogitsSink& sink_;
  };

  testing::FakeExecutor model_;
  float noise_;
  std::mt19937 random_{5};
};

std::vector<Request> SomeRequests(uint32_t seed, int count, float temperature) {
  std::mt19937 random(seed);
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    Request request{.max_tokens = 20 + static_cast<int>(random() % 100)};
    const int length = 1 + static_cast<int>(random() % 90);
    for (int k = 0; k < length; ++k) {
      request.prompt.emplace_back(static_cast<int>(random() % kVocabulary));
    }
    request.sampling.temperature = temperature;
    request.sampling.frequency_penalty = 0.1F;
    request.sampling.seed = random();
    requests.push_back(std::move(request));
  }
  return requests;
}

// All at once; accepted: guesses that were right.
std::vector<Answer> AskAll(CoreSetup setup, const std::vector<Request>& requests, int64_t* accepted,
                           int64_t* steps) {
  Fixture fixture(setup);
  std::vector<std::shared_ptr<EventStream>> streams;
  for (const Request& request : requests) streams.push_back(fixture.Submit(request));
  fixture.RunToEnd();
  std::vector<Answer> answers;
  for (const auto& stream : streams) answers.push_back(Collect(*stream)[0]);
  *accepted = 0;
  for (const Answer& answer : answers) *accepted += answer.finish.usage.accepted_tokens;
  *steps = fixture.core().scheduler().counters().steps;
  return answers;
}

std::vector<PoolSpec> TargetPools() { return {{.pages = 200}, {.pages = 200, .window = 50}}; }

struct Case {
  float noise = 0;
  int draft_pages = 200;
  int max_rows = 512;
  bool small_target = false;
};

int64_t Compare(const Case& of, float temperature) {
  // The draft model sees what the model sees, so its logits are the model's.
  const std::vector<PoolSpec> own = {{.pages = of.draft_pages},
                                     {.pages = of.draft_pages, .window = 50}};
  CoreSetup setup{.pools = TargetPools()};
  if (of.small_target) {
    setup.pools = {{.pages = 9}, {.pages = 9, .window = 50}};
    setup.max_context = 280;
  }
  const std::vector<Request> requests = SomeRequests(3, 6, temperature);
  int64_t accepted = 0, steps = 0, none = 0, fewer = 0;
  const std::vector<Answer> expected = AskAll(setup, requests, &none, &steps);
  NoisyExecutor executor(own, of.noise);
  ModelDrafter drafter(executor, KernelsFor(Isa::kScalar),
                       {.pools = own, .max_rows = of.max_rows, .max_context = 1000});
  setup.drafter = &drafter;
  const std::vector<Answer> answers = AskAll(setup, requests, &accepted, &fewer);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(TokensOf(answers[i]), TokensOf(expected[i])) << i;
    EXPECT_EQ(answers[i].text, expected[i].text) << i;
  }
  EXPECT_EQ(none, 0);
  EXPECT_LE(fewer, steps);
  // Sequences that ended hold nothing.
  for (int g = 0; g < drafter.book().groups(); ++g) {
    EXPECT_EQ(drafter.book().pool(g).used_pages(), 0);
  }
  return accepted;
}

TEST(ModelDrafter, AModelThatIsRightIsAlwaysAccepted) {
  const std::vector<PoolSpec> pools = TargetPools();
  NoisyExecutor executor(pools, 0);
  ModelDrafter drafter(executor, KernelsFor(Isa::kScalar),
                       {.pools = pools, .max_rows = 512, .max_context = 1000});
  int64_t accepted = 0, steps = 0;
  for (const Answer& answer :
       AskAll({.pools = pools, .drafter = &drafter}, SomeRequests(9, 3, 1), &accepted, &steps)) {
    EXPECT_EQ(answer.finish.usage.accepted_tokens, answer.finish.usage.drafted_tokens);
    EXPECT_GT(answer.finish.usage.accepted_tokens, 10);
  }
  // Each known token and guess was computed once, but for the last guess of each draft.
  EXPECT_LT(executor.rows, 3 * (90 + 120));
}

TEST(ModelDrafter, ChangesNoAnswer) {
  for (const float temperature : {0.0F, 1.0F}) {
    EXPECT_GT(Compare({.noise = 0}, temperature), 100);
    EXPECT_GT(Compare({.noise = 0.5F}, temperature), 20);
    Compare({.noise = 5}, temperature);
    EXPECT_GT(Compare({.noise = 0.2F, .draft_pages = 7}, temperature), 0);  // not for all at once
    EXPECT_GT(Compare({.noise = 0.2F, .max_rows = 40}, temperature), 0);
    EXPECT_GT(Compare({.noise = 0.2F, .small_target = true}, temperature), 0);
  }
}

TEST(ModelDrafter, ABrokenModelGuessesNothing) {
  const std::vector<PoolSpec> pools = TargetPools();
  NoisyExecutor executor(pools, 0);
  executor.fails = true;
  ModelDrafter drafter(executor, KernelsFor(Isa::kScalar),
                       {.pools = pools, .max_rows = 512, .max_context = 1000});
  int64_t accepted = 0, steps = 0;
  for (const Answer& answer :
       AskAll({.pools = pools, .drafter = &drafter}, SomeRequests(9, 3, 1), &accepted, &steps)) {
    EXPECT_EQ(answer.finish.reason, FinishReason::kLength);
  }
  EXPECT_EQ(accepted, 0);
}

TEST(ModelDrafter, GuessesNothingWhereItsStepsCostTooMuch) {
  const std::vector<PoolSpec> pools = TargetPools();
  NoisyExecutor executor(pools, 0);
  const StepPrice price({{1, 1}, {8, 1.5}}, 0, 0);
  ModelDrafter drafter(executor, KernelsFor(Isa::kScalar),
                       {.pools = pools,
                        .max_rows = 512,
                        .max_context = 1000,
                        .price = price,
                        .target_price = price});
  int64_t accepted = 0, steps = 0;
  AskAll({.pools = pools, .drafter = &drafter, .price = price}, SomeRequests(9, 3, 1), &accepted,
         &steps);
  EXPECT_EQ(executor.rows, 0);
}

TEST(TwoDrafters, ChangeNoAnswer) {
  const std::vector<PoolSpec> pools = TargetPools();
  const std::vector<Request> requests = SomeRequests(13, 4, 0.5F);
  int64_t accepted = 0, steps = 0;
  const std::vector<Answer> expected = AskAll({.pools = pools}, requests, &accepted, &steps);
  NoisyExecutor executor(pools, 0.3F);
  TwoDrafters both(std::make_unique<NgramDrafter>(),
                   std::make_unique<ModelDrafter>(
                       executor, KernelsFor(Isa::kScalar),
                       ModelDrafterOptions{.pools = pools, .max_rows = 512, .max_context = 1000}));
  const std::vector<Answer> answers =
      AskAll({.pools = pools, .drafter = &both}, requests, &accepted, &steps);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(TokensOf(answers[i]), TokensOf(expected[i])) << i;
  }
  EXPECT_GT(accepted, 0);
}

TEST(SameVocabulary, NamesTheFirstTokenThatDiffers) {
  const Tokenizer model = testing::ListTokenizer({"a", "b", "c"}, {2});
  EXPECT_TRUE(CheckSameVocabulary(model, testing::ListTokenizer({"a", "b", "c"}, {2})));
  const auto refused = [&](const Tokenizer& draft, std::string_view words) {
    const Status status = CheckSameVocabulary(model, draft);
    return !status && status.error().message.find(words) != std::string::npos;
  };
  EXPECT_TRUE(refused(testing::ListTokenizer({"a", "b"}, {1}), "2 tokens and the model 3"));
  EXPECT_TRUE(refused(testing::ListTokenizer({"a", "x", "c"}, {2}), "token 1"));
  EXPECT_TRUE(refused(testing::ListTokenizer({"a", "b", "c"}, {}), "token 2"));
}

}  // namespace
}  // namespace nibble
