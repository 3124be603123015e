#include "engine/engine_core.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>

#include "engine/check_request.h"
#include "engine/core_fixture.h"

namespace nibble {
namespace {

using testing::FakeExecutor;
using testing::TokensOf;
using Fixture = testing::CoreFixture;

constexpr int kVocabulary = testing::kCoreVocabulary;

std::vector<TokenId> Ids(std::initializer_list<int> ids) {
  std::vector<TokenId> out;
  for (int id : ids) out.emplace_back(id);
  return out;
}

std::vector<TokenId> RandomIds(std::mt19937& random, int n, int below = kVocabulary) {
  std::vector<TokenId> ids;
  for (int i = 0; i < n; ++i) ids.emplace_back(static_cast<int>(random() % below));
  return ids;
}

// Forces the answer behind a prompt of n tokens.
void Script(FakeExecutor& executor, int n, std::initializer_list<int> answer) {
  for (int id : answer) executor.script[n++ - 1] = TokenId{id};
}

TEST(EngineCore, AnswersWithTokensTextAndUsage) {
  Fixture fixture;
  Script(fixture.executor(), 3, {5, 6, 7, 8});
  const Answer answer = fixture.Ask({.prompt = Ids({1, 2, 3}), .max_tokens = 3});
  EXPECT_EQ(TokensOf(answer), (std::vector<int>{5, 6, 7}));
  EXPECT_EQ(answer.text, "<5><6><7>");
  EXPECT_EQ(answer.finish.reason, FinishReason::kLength);
  EXPECT_EQ(answer.finish.usage.prompt_tokens, 3);
  EXPECT_EQ(answer.finish.usage.generated_tokens, 3);
  EXPECT_EQ(answer.finish.usage.decode_steps, 2);
  EXPECT_EQ(answer.finish.usage.decode_weight_bytes, 2000);
  EXPECT_EQ(answer.finish.usage.decode_kv_bytes, 4 + 5);
  EXPECT_GT(answer.finish.usage.prefill_s, 0);
  EXPECT_GT(answer.finish.usage.decode_s, 0);
}

TEST(EngineCore, TellsOfEveryStep) {
  struct Observer : StepObserver {
    void OnStep(const StepRecord& step) override { steps.push_back(step); }
    std::vector<StepRecord> steps;
  } observer;
  Fixture fixture({.observer = &observer});
  Script(fixture.executor(), 3, {5, 6, 7, 8});
  fixture.Ask({.prompt = Ids({1, 2, 3}), .max_tokens = 3});
  ASSERT_EQ(observer.steps.size(), 3U);
  const StepRecord& prompt = observer.steps[0];
  EXPECT_EQ(prompt.number, 1);
  EXPECT_EQ(prompt.rows, 3);
  EXPECT_EQ(prompt.admitted, 1);
  EXPECT_EQ(prompt.sampled, 1);
  EXPECT_EQ(prompt.running, 1);
  EXPECT_EQ(prompt.weight_bytes, 1000);
  ASSERT_EQ(prompt.spans.size(), 1U);
  EXPECT_FALSE(prompt.spans[0].answer);
  EXPECT_EQ(prompt.spans[0].rows, 3);
  const StepRecord& last = observer.steps[2];
  EXPECT_EQ(last.rows, 1);
  EXPECT_EQ(last.admitted, 0);
  EXPECT_TRUE(last.spans[0].answer);
  EXPECT_EQ(last.spans[0].first, 4);
  EXPECT_EQ(last.kv_bytes, 5);
  EXPECT_EQ(last.running, 0);
  EXPECT_GT(last.seconds, 0);
  EXPECT_EQ(fixture.core().totals().sampled, 3);
  EXPECT_EQ(fixture.core().totals().weight_bytes, 3000);
  // Those that were cancelled between two steps count for the second.
  auto gone = fixture.Submit({.prompt = Ids({1, 2}), .max_tokens = 9});
  fixture.Step();
  fixture.core().Cancel(fixture.last_id());
  fixture.Ask({.prompt = Ids({1}), .max_tokens = 1});
  EXPECT_EQ(observer.steps.back().cancelled, 1);
}

TEST(EngineCore, EndTokensEndUnlessTheyAreIgnored) {
  Fixture fixture({.end = {9}});
  Script(fixture.executor(), 1, {5, 9, 6});
  const Answer answer = fixture.Ask({.prompt = Ids({1}), .max_tokens = 10});
  EXPECT_EQ(TokensOf(answer), (std::vector<int>{5, 9}));
  EXPECT_EQ(answer.text, "<5>");
  EXPECT_EQ(answer.finish.reason, FinishReason::kStop);
  EXPECT_EQ(answer.finish.usage.generated_tokens, 2);
  const Answer longer = fixture.Ask({.prompt = Ids({1}), .max_tokens = 3, .ignore_end = true});
  EXPECT_EQ(longer.text, "<5><6>");
  EXPECT_EQ(longer.finish.reason, FinishReason::kLength);
}

TEST(EngineCore, StopStringsEndAnAnswerAcrossTokenBorders) {
  Fixture fixture;
  Script(fixture.executor(), 1, {5, 6, 7, 8});
  const Answer answer =
      fixture.Ask({.prompt = Ids({1}), .max_tokens = 10, .stop = {"nothing", "><7"}});
  EXPECT_EQ(answer.text, "<5><6");
  EXPECT_EQ(TokensOf(answer), (std::vector<int>{5, 6, 7}));
  EXPECT_EQ(answer.tokens[0].text, "<5");  // ">" could begin the stop string
  EXPECT_EQ(answer.tokens[1].text, "><6");
  EXPECT_EQ(answer.finish.reason, FinishReason::kStop);
  EXPECT_EQ(answer.finish.stop, "><7");
}

TEST(EngineCore, TextHeldForAStopStringComesWithTheEnd) {
  Fixture fixture;
  Script(fixture.executor(), 1, {5, 6});
  const Answer answer = fixture.Ask({.prompt = Ids({1}), .max_tokens = 2, .stop = {"<6>!", "6>?"}});
  EXPECT_EQ(answer.tokens[1].text, "");
  EXPECT_EQ(answer.finish.text, "<6>");
  EXPECT_EQ(answer.text, "<5><6>");
  EXPECT_EQ(answer.finish.reason, FinishReason::kLength);
}

TEST(EngineCore, HalfCharactersWaitForTheirOtherHalf) {
  Fixture fixture({.texts = {"a", "\xC3", "\xA9", "b"}});
  Script(fixture.executor(), 1, {1, 2, 1, 3, 1});
  const Answer answer = fixture.Ask({.prompt = Ids({0}), .max_tokens = 5});
  EXPECT_EQ(answer.tokens[0].text, "");
  EXPECT_EQ(answer.tokens[1].text, "\xC3\xA9");
  EXPECT_EQ(answer.text,
            "\xC3\xA9\xEF\xBF\xBD"
            "b\xEF\xBF\xBD");
}

TEST(EngineCore, MaxTokensZeroComputesThePromptOnly) {
  Fixture fixture;
  const Answer answer = fixture.Ask({.prompt = Ids({1, 2}), .max_tokens = 0});
  EXPECT_TRUE(answer.tokens.empty());
  EXPECT_EQ(answer.finish.reason, FinishReason::kLength);
  EXPECT_EQ(fixture.core().scheduler().counters().rows, 2);
}

TEST(EngineCore, AnAnswerEndsWhereTheContextDoes) {
  Fixture fixture({.max_context = 20});
  const Answer answer = fixture.Ask({.prompt = Ids({1, 2, 3})});
  EXPECT_EQ(answer.finish.usage.generated_tokens, 17);
  EXPECT_EQ(answer.finish.reason, FinishReason::kLength);
}

TEST(EngineCore, CancelEndsOnlyThatRequest) {
  Fixture fixture;
  auto cancelled = fixture.Submit({.prompt = Ids({1, 2}), .max_tokens = 500});
  const RequestId id = fixture.last_id();
  auto other = fixture.Submit({.prompt = Ids({3}), .max_tokens = 12});
  for (int i = 0; i < 5; ++i) fixture.Step();
  fixture.core().Cancel(id);
  fixture.core().Cancel(RequestId{12345});
  fixture.RunToEnd();
  const Answer answer = Collect(*cancelled)[0];
  EXPECT_EQ(answer.finish.reason, FinishReason::kCancelled);
  EXPECT_EQ(answer.tokens.size(), 5U);
  Fixture alone;
  EXPECT_EQ(TokensOf(Collect(*other)[0]),
            TokensOf(alone.Ask({.prompt = Ids({3}), .max_tokens = 12})));
  EXPECT_TRUE(fixture.core().idle());
}

TEST(EngineCore, NanEndsOneRequestAndLeavesTheOthersAlone) {
  Fixture fixture;
  fixture.executor().poison = TokenId{13};
  auto bad = fixture.Submit({.prompt = Ids({1, 13, 2}), .max_tokens = 10});
  auto good = fixture.Submit({.prompt = Ids({3}), .max_tokens = 1});
  fixture.RunToEnd();
  const Answer answer = Collect(*bad)[0];
  EXPECT_EQ(answer.finish.reason, FinishReason::kError);
  ASSERT_TRUE(answer.finish.error);
  EXPECT_NE(answer.finish.error->message.find("nan"), std::string::npos);
  EXPECT_NE(answer.finish.error->message.find("position 3"), std::string::npos);
  EXPECT_EQ(Collect(*good)[0].finish.reason, FinishReason::kLength);
}

TEST(EngineCore, AFailedStepEndsItsRequestsAndTheNextOnesRun) {
  Fixture fixture;
  fixture.executor().before = [&](const ExecuteInput&) -> Status {
    if (fixture.executor().steps == 2) return Fail(ErrorKind::kIo, "the device is gone");
    return {};
  };
  const Answer answer = fixture.Ask({.prompt = Ids({1}), .max_tokens = 10});
  EXPECT_EQ(answer.finish.reason, FinishReason::kError);
  EXPECT_EQ(answer.finish.error->message, "the device is gone");
  EXPECT_EQ(fixture.Ask({.prompt = Ids({1}), .max_tokens = 10}).finish.reason,
            FinishReason::kLength);
}

TEST(EngineCore, EveryChoiceIsDrawnByItself) {
  Fixture fixture;
  Request request{.prompt = Ids({1, 2}), .max_tokens = 20, .n = 3};
  request.sampling.temperature = 1;
  request.sampling.seed = 5;
  auto stream = fixture.Submit(request);
  fixture.RunToEnd();
  const std::vector<Answer> answers = Collect(*stream, 3);
  EXPECT_NE(TokensOf(answers[0]), TokensOf(answers[1]));
  EXPECT_NE(TokensOf(answers[1]), TokensOf(answers[2]));
  request.n = 1;
  EXPECT_EQ(TokensOf(Fixture().Ask(request)), TokensOf(answers[0]));
}

TEST(EngineCore, ChoicesShareThePromptAndItsCounts) {
  std::mt19937 random(3);
  Request request{.prompt = RandomIds(random, 150), .max_tokens = 8, .n = 128};
  request.sampling = {.temperature = 1, .frequency_penalty = 2, .penalty_last_n = -1, .seed = 3};
  Fixture fixture({.pools = {{.pages = 1000}}});
  const auto accepted = fixture.core().Accept(request);
  ASSERT_TRUE(accepted);
  auto stream = std::make_shared<EventStream>(request.n);
  fixture.core().Start(RequestId{1}, *accepted, stream, 0);
  for (uint64_t sequence = 1; sequence <= 128; ++sequence) {
    ASSERT_TRUE(fixture.core().scheduler().Find(RequestId{sequence}));
    EXPECT_EQ(fixture.core().scheduler().Find(RequestId{sequence})->prompt, (*accepted)->prompt);
  }
  fixture.RunToEnd();
  const std::vector<Answer> answers = Collect(*stream, request.n);
  request.n = 1;
  EXPECT_EQ(TokensOf(Fixture({.pools = {{.pages = 1000}}}).Ask(request)), TokensOf(answers[0]));
}

TEST(CheckRequest, BoundsThePromptsOfAllChoicesTogether) {
  Request request{.prompt = std::vector<TokenId>(1 << 16, TokenId{1}), .max_tokens = 1, .n = 64};
  EXPECT_TRUE(CheckRequest(request, kVocabulary, 1 << 20));
  request.n = 65;
  const Status refused = CheckRequest(request, kVocabulary, 1 << 20);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("4259840"), std::string::npos) << refused.error().message;
  EXPECT_NE(refused.error().message.find("4194304"), std::string::npos) << refused.error().message;
}

TEST(EngineCore, LogprobsComeWithEveryToken) {
  Fixture fixture;
  const Answer answer = fixture.Ask({.prompt = Ids({1, 2}), .max_tokens = 4, .logprobs = 3});
  for (const TokenEvent& event : answer.tokens) {
    ASSERT_EQ(event.top.size(), 3U);
    EXPECT_EQ(event.top[0].id, event.id);  // greedy
    EXPECT_EQ(event.top[0].logprob, event.logprob);
    EXPECT_GT(event.top[1].logprob, event.top[2].logprob);
    EXPECT_LT(event.logprob, 0);
  }
}

// Keeps rows by position.
class Recorder : public PositionLogitsSink {
 public:
  void Rows(Position first, MatrixView<float> logits) override {
    for (int r = 0; r < logits.rows; ++r) {
      EXPECT_EQ(first.value() + r, static_cast<int>(rows.size()) + from) << "in order, once each";
      rows.emplace_back(logits.row(r), logits.row(r) + logits.cols);
      std::fill_n(logits.row(r), logits.cols, 0.0F);  // allowed: must not change the answer
    }
  }
  int from = 0;
  std::vector<std::vector<float>> rows;
};

TEST(EngineCore, TheLogitsSinkGetsEveryPositionOnce) {
  std::mt19937 random(2);
  const std::vector<TokenId> prompt = RandomIds(random, 70);
  Recorder whole;
  const Answer expected = Fixture().Ask({.prompt = prompt, .max_tokens = 5, .logits = &whole});
  EXPECT_EQ(whole.rows.size(), 74U);
  for (int max_rows : {1, 7, 32}) {
    Recorder chunked;
    chunked.from = 40;
    Fixture fixture({.limits = {.max_rows = max_rows}});
    const Answer answer =
        fixture.Ask({.prompt = prompt, .max_tokens = 5, .logits = &chunked, .logits_from = 40});
    EXPECT_EQ(TokensOf(answer), TokensOf(expected));
    ASSERT_EQ(chunked.rows.size(), 34U);
    for (size_t i = 0; i < chunked.rows.size(); ++i) EXPECT_EQ(chunked.rows[i], whole.rows[i + 40]);
  }
}

TEST(EngineCore, AQueueThatIsFullFailsTheRequest) {
  Fixture fixture({.limits = {.max_queue = 1}});
  auto first = fixture.Submit({.prompt = Ids({1}), .max_tokens = 1});
  auto second = fixture.Submit({.prompt = Ids({1}), .max_tokens = 1});
  fixture.RunToEnd();
  EXPECT_EQ(Collect(*first)[0].finish.reason, FinishReason::kLength);
  const Answer refused = Collect(*second)[0];
  EXPECT_EQ(refused.finish.reason, FinishReason::kError);
  EXPECT_EQ(refused.finish.error->kind, ErrorKind::kNoRoom);
}

TEST(EngineCore, RefusesWrongRequestsByName) {
  Fixture fixture({.pools = {{.pages = 5}}, .max_context = 400});
  auto refused = [&](const Request& request, std::vector<std::string> parts) {
    const Status status = fixture.core().Check(request);
    if (status) return false;
    for (const std::string& part : parts) {
      if (status.error().message.find(part) == std::string::npos) {
        ADD_FAILURE() << status.error().message << " does not say " << part;
      }
    }
    return status.error().kind == ErrorKind::kBadInput;
  };
  std::mt19937 random(1);
  EXPECT_TRUE(refused({.prompt = {}}, {"empty"}));
  EXPECT_TRUE(refused({.prompt = RandomIds(random, 401)}, {"401", "400"}));
  EXPECT_TRUE(refused({.prompt = RandomIds(random, 400)}, {"400", "no room"}));
  EXPECT_TRUE(refused({.prompt = RandomIds(random, 200), .max_tokens = 0}, {"200", "160"}));
  EXPECT_TRUE(refused({.prompt = RandomIds(random, 100), .max_tokens = 62}, {"161", "160"}));
  EXPECT_TRUE(refused({.prompt = Ids({1, kVocabulary})}, {"token 1", "40", "39"}));
  EXPECT_TRUE(refused({.prompt = Ids({-1})}, {"-1"}));
  EXPECT_TRUE(refused({.prompt = Ids({1}), .max_tokens = -2}, {"max_tokens"}));
  EXPECT_TRUE(refused({.prompt = Ids({1}), .stop = {""}}, {"stop"}));
  EXPECT_TRUE(refused({.prompt = Ids({1}), .priority = -1}, {"priority"}));
  EXPECT_TRUE(refused({.prompt = Ids({1}), .n = 0}, {"n is 0"}));
  EXPECT_TRUE(refused({.prompt = Ids({1}), .n = 129}, {"n is 129", "128"}));
  EXPECT_TRUE(refused({.prompt = Ids({1}), .logprobs = 2000}, {"logprobs"}));
  Request nan{.prompt = Ids({1})};
  nan.sampling.temperature = std::nanf("");
  EXPECT_TRUE(refused(nan, {"temperature"}));
  EXPECT_TRUE(fixture.core().Check({.prompt = RandomIds(random, 100), .max_tokens = 61}));
  EXPECT_TRUE(fixture.core().Check({.prompt = RandomIds(random, 160), .max_tokens = 0}));
}

TEST(EngineCore, AnEndlessAnswerEndsWhereThePagesDo) {
  Fixture fixture({.pools = {{.pages = 2}}, .max_context = 400});
  const Answer answer = fixture.Ask({.prompt = Ids({1, 2, 3, 4})});
  EXPECT_EQ(answer.finish.reason, FinishReason::kLength);
  EXPECT_EQ(answer.finish.usage.generated_tokens, 60);
}

// The promise of the whole engine: nobody's answer depends on who else is served, or how.
TEST(EngineCore, AnswersAreTheSameInAnySchedule) {
  struct Question {
    Request request;
    std::vector<int> expected;
  };
  std::mt19937 random(2024);
  std::vector<Question> questions;
  for (int i = 0; i < 14; ++i) {
    Question question;
    question.request = {.prompt = RandomIds(random, 1 + static_cast<int>(random() % 150)),
                        .max_tokens = 1 + static_cast<int>(random() % 90),
                        .priority = static_cast<int>(random() % 3)};
    question.request.sampling.temperature = i % 3 == 0 ? 0 : 0.8F;
    question.request.sampling.top_k = i % 2 == 0 ? 0 : 12;
    question.request.sampling.frequency_penalty = 0.1F;
    question.request.sampling.seed = static_cast<uint64_t>(i);
    question.expected = TokensOf(Fixture().Ask(question.request));
    questions.push_back(std::move(question));
  }
  int64_t preemptions = 0;
  for (uint32_t seed = 0; seed < 30; ++seed) {
    std::mt19937 schedule(seed);
    auto pick = [&](int low, int high) {
      return low + static_cast<int>(schedule() % (high - low + 1));
    };
    Fixture fixture({.limits = {.max_rows = pick(1, 80), .max_running = pick(1, 10)},
                     .pools = {{.pages = pick(8, 30)}, {.pages = pick(4, 30), .window = 50}}});
    fixture.executor().block_rows = pick(1, 8);
    std::vector<std::shared_ptr<EventStream>> streams;
    for (const Question& question : questions) {
      streams.push_back(fixture.Submit(question.request));
      for (int i = pick(0, 6); i > 0; --i) fixture.Step();
    }
    fixture.RunToEnd();
    for (size_t i = 0; i < questions.size(); ++i) {
      const Answer answer = Collect(*streams[i])[0];
      EXPECT_EQ(TokensOf(answer), questions[i].expected) << "seed " << seed << ", request " << i;
      preemptions += answer.finish.usage.preemptions;
    }
    EXPECT_EQ(fixture.core().scheduler().book().pool(0).used_pages(), 0);
  }
  EXPECT_GT(preemptions, 20);
}

}  // namespace
}  // namespace nibble
