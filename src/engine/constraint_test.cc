#include "grammar/constraint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/core_fixture.h"
#include "engine/sampler.h"
#include "engine/vocabulary.h"
#include "grammar/compile.h"

namespace nibble {
namespace {

using testing::CoreFixture;
using testing::kCoreVocabulary;
using testing::ListTokenizer;

std::shared_ptr<grammar::Constraint> Matching(const std::string& regex, const Tokenizer& tokenizer,
                                              int vocabulary = kCoreVocabulary) {
  grammar::Wanted wanted;
  wanted.kind = grammar::Wanted::Kind::kRegex;
  wanted.text = regex;
  const auto automaton = grammar::Compile(wanted);
  EXPECT_TRUE(automaton) << automaton.error().message;
  return std::make_shared<grammar::Constraint>(*automaton, MakeVocabulary(tokenizer, vocabulary));
}

TEST(ConstrainedAnswers, KeepToTheirFormAndEndWithIt) {
  const Tokenizer tokenizer = ListTokenizer(testing::NumberedTexts(), {7});
  const auto constraint = Matching("(<1>|<2>|<30>){3}", tokenizer);
  for (const float temperature : {0.0F, 2.0F}) {
    CoreFixture core({.end = {7}});
    Request request{.prompt = {TokenId{3}, TokenId{4}}, .max_tokens = 20};
    request.sampling.temperature = temperature;
    request.sampling.seed = 5;
    request.n = 4;
    request.constraint = constraint;
    for (const Answer& answer : core.AskAll(request)) {
      EXPECT_EQ(answer.finish.reason, FinishReason::kStop);
      ASSERT_EQ(answer.tokens.size(), 3U);
      for (const TokenEvent& token : answer.tokens) {
        EXPECT_TRUE(token.id == TokenId{1} || token.id == TokenId{2} || token.id == TokenId{30});
      }
    }
  }
}

TEST(ConstrainedAnswers, MayEndOnlyWhereTheFormMay) {
  const Tokenizer tokenizer = ListTokenizer(testing::NumberedTexts(), {7});
  CoreFixture core({.end = {7}});
  Request request{.prompt = {TokenId{3}}, .max_tokens = 30};
  request.sampling.temperature = 3;
  request.constraint = Matching("(<1><2>)+", tokenizer);
  for (uint64_t seed = 0; seed < 8; ++seed) {
    request.sampling.seed = seed;
    const Answer answer = core.Ask(request);
    const bool ended = answer.finish.reason == FinishReason::kStop;
    EXPECT_EQ(answer.tokens.size() % 2, ended ? 1U : 0U);
    EXPECT_EQ(answer.tokens.back().id == TokenId{7}, ended);
  }
}

TEST(ConstrainedAnswers, ADeadEndOfTheVocabularyIsTheAnswersError) {
  const Tokenizer tokenizer = ListTokenizer(testing::NumberedTexts(), {7});
  CoreFixture core({.end = {7}});
  Request request{.prompt = {TokenId{3}}, .max_tokens = 30};
  request.constraint = Matching("<1>x", tokenizer);
  const Answer answer = core.Ask(request);
  EXPECT_EQ(answer.finish.reason, FinishReason::kError);
  ASSERT_TRUE(answer.finish.error);
  EXPECT_NE(answer.finish.error->message.find("no token of the vocabulary"), std::string::npos);
  request.constraint = nullptr;
  EXPECT_NE(core.Ask(request).finish.reason, FinishReason::kError);
}

// What speculation does: tokens are taken back, a few or more than are remembered.
TEST(ConstrainedAnswers, TokensCanBeTakenBack) {
  const Tokenizer tokenizer = ListTokenizer(testing::NumberedTexts(), {7});
  SamplerState state(0);
  state.Constrain(Matching("(<1><2>){400}<3>", tokenizer));
  const auto allowed = [&] {
    const auto mask = state.trail().Mask();
    EXPECT_TRUE(mask);
    return (*mask)->only.value_or(kNoToken);
  };
  std::vector<TokenId> seen;
  for (int i = 0; i < 800; ++i) {
    seen.push_back(allowed());
    state.Accept(seen.back());
  }
  EXPECT_EQ(allowed(), TokenId{3});
  const SamplerState checkpoint = state;
  for (const int back : {1, 5, 300, 400}) {
    state.Rollback(back);
    const auto position = static_cast<size_t>(state.position());
    EXPECT_EQ(allowed(), seen[position]);
    for (size_t i = position; i < seen.size(); ++i) state.Accept(seen[i]);
    EXPECT_EQ(allowed(), TokenId{3});
  }
  EXPECT_EQ(checkpoint.position(), state.position());
}

// The draw is that of the same row with everything else forbidden.
TEST(ConstrainedAnswers, AreDrawnAsIfAllElseWereForbidden) {
  const Tokenizer tokenizer = ListTokenizer(testing::NumberedTexts(), {7});
  Sampler sampler(kCoreVocabulary, KernelsFor(Isa::kScalar));
  std::vector<float> logits(kCoreVocabulary);
  for (int i = 0; i < kCoreVocabulary; ++i)
    logits[static_cast<size_t>(i)] = static_cast<float>(i % 7);
  SamplerState held(0);
  held.Constrain(Matching("<[1-4]>", tokenizer));
  const SamplerState free(0);
  SamplingParams params{.temperature = 1};
  SamplingParams forbidding = params;
  for (int i = 0; i < kCoreVocabulary; ++i) {
    if (i >= 1 && i <= 4) continue;
    forbidding.logit_bias.push_back({TokenId{i}, -std::numeric_limits<float>::infinity()});
  }
  for (uint64_t seed = 0; seed < 50; ++seed) {
    params.seed = forbidding.seed = seed;
    PreparedSampling with;
    with.params = params;
    PreparedSampling without;
    without.params = forbidding;
    const auto a = sampler.Draw(with, held, 0, -1, logits);
    const auto b = sampler.Draw(without, free, 0, -1, logits);
    ASSERT_TRUE(a && b);
    EXPECT_EQ(a->id, b->id);
  }
}

}  // namespace
}  // namespace nibble
