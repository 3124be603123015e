// Guesses of what a form forces change no bit of an answer, and save steps.
#include "engine/form_drafter.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "engine/core_fixture.h"
#include "engine/engine.h"
#include "engine/vocabulary.h"
#include "grammar/compile.h"
#include "tests/support/test_data.h"

namespace nibble {
namespace {

using grammar::Wanted;
using testing::CoreFixture;
using testing::ListTokenizer;
using testing::TokensOf;

std::shared_ptr<grammar::Constraint> Held(Wanted::Kind kind, std::string text,
                                          std::shared_ptr<const grammar::Vocabulary> vocabulary) {
  Wanted wanted;
  wanted.kind = kind;
  wanted.text = std::move(text);
  const auto automaton = grammar::Compile(wanted);
  EXPECT_TRUE(automaton) << automaton.error().message;
  return std::make_shared<grammar::Constraint>(*automaton, std::move(vocabulary));
}

TEST(FormDrafter, TokensWithoutAChoiceTakeNoStepOfTheirOwn) {
  const Tokenizer tokenizer = ListTokenizer(testing::NumberedTexts(), {7});
  const auto vocabulary = MakeVocabulary(tokenizer, testing::kCoreVocabulary);
  for (const float temperature : {0.0F, 1.5F}) {
    Request request{.prompt = {TokenId{3}, TokenId{4}}, .max_tokens = 60};
    request.sampling.temperature = temperature;
    request.sampling.seed = 11;
    request.constraint =
        Held(Wanted::Kind::kRegex, "((<1>|<2>)<3><4><5><6>(<8>|<9>)){1,4}<10><11>", vocabulary);
    const auto ask = [&](Drafter* drafter) {
      CoreFixture core({.end = {7}, .drafter = drafter});
      const Answer answer = core.Ask(request);
      return std::pair(answer, core.core().scheduler().counters().steps);
    };
    const auto [expected, steps] = ask(nullptr);
    FormDrafter drafter(tokenizer);
    const auto [answer, fewer] = ask(&drafter);
    EXPECT_EQ(TokensOf(answer), TokensOf(expected));
    EXPECT_EQ(answer.finish.reason, expected.finish.reason);
    const Usage& usage = answer.finish.usage;
    EXPECT_EQ(usage.accepted_tokens, usage.drafted_tokens);
    EXPECT_EQ(fewer + usage.accepted_tokens, steps);
    // Per round: a choice, four tokens without one, a choice; the end's two.
    const int rounds = (usage.generated_tokens - 2) / 6;
    EXPECT_GE(usage.accepted_tokens, 4 * rounds);
  }
}

// Where the vocabulary has several ways to write what is forced, the model chooses.
TEST(FormDrafter, GivesTheSameBitsOverAModel) {
  NIBBLE_SHARED_OR_SKIP(path, "models/stories260K/tinyllamas-stories-260k-f32.gguf");
  const std::string schema = R"({"type": "object", "additionalProperties": false,
    "required": ["the name of it", "how many there are", "is it nice"], "properties": {
    "the name of it": {"type": "string", "maxLength": 12}, "how many there are": {"type": "integer",
    "minimum": 0, "maximum": 9}, "is it nice": {"enum": ["yes it is", "no it is not"]}}})";
  const auto ask = [&](bool forms, bool ngram, float temperature) {
    EngineOptions options{.threads = 1, .max_context = 300};
    options.speculation = {.ngram = ngram, .forms = forms};
    auto engine = Engine::Create(path, options);
    EXPECT_TRUE(engine) << engine.error().message;
    const auto prompt = (*engine)->tokenizer().Encode("Once upon a time");
    Request request{.prompt = *prompt, .max_tokens = 200, .logprobs = 0};
    request.sampling = {.temperature = temperature, .seed = 9};
    request.constraint = Held(Wanted::Kind::kJsonSchema, schema, (*engine)->vocabulary());
    auto stream = std::make_shared<EventStream>();
    EXPECT_TRUE((*engine)->Submit(std::move(request), stream));
    return Collect(*stream)[0];
  };
  for (const float temperature : {0.0F, 1.0F}) {
    const Answer expected = ask(false, false, temperature);
    EXPECT_EQ(expected.finish.usage.drafted_tokens, 0);
    for (const bool ngram : {false, true}) {
      const Answer answer = ask(true, ngram, temperature);
      EXPECT_EQ(TokensOf(answer), TokensOf(expected));
      EXPECT_EQ(answer.text, expected.text);
      ASSERT_EQ(answer.tokens.size(), expected.tokens.size());
      for (size_t i = 0; i < answer.tokens.size(); ++i) {
        EXPECT_EQ(answer.tokens[i].logprob, expected.tokens[i].logprob);
      }
      // How many there are depends on prices, which are measured.
      RecordProperty("accepted", answer.finish.usage.accepted_tokens);
    }
  }
}

}  // namespace
}  // namespace nibble
