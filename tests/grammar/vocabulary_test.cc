// Masks on real vocabularies against every token tried byte by byte.
#include <gtest/gtest.h>

#include <random>

#include "engine/vocabulary.h"
#include "grammar/compile.h"
#include "grammar/constraint.h"
#include "tests/support/test_data.h"
#include "tokenizer/load.h"

namespace nibble::grammar {
namespace {

constexpr const char* kSchema = R"({"type": "object", "additionalProperties": {"type": "integer"},
  "required": ["name", "when"], "properties": {"name": {"type": "string", "minLength": 2,
  "maxLength": 40}, "when": {"type": "string", "format": "date-time"}, "tags": {"type": "array",
  "items": {"enum": ["é", "a\nb", "日本"]}}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
  "price": {"type": "number", "minimum": 0, "maximum": 99.5}}})";

std::vector<Wanted> Cases() {
  const auto of = [](Wanted::Kind kind, std::string text) {
    Wanted wanted;
    wanted.kind = kind;
    wanted.text = std::move(text);
    return wanted;
  };
  Wanted choices = of(Wanted::Kind::kChoice, "");
  choices.choices = {"yes", "yes, but", "no", "ねこ", "😀!"};
  return {of(Wanted::Kind::kJsonSchema, kSchema), of(Wanted::Kind::kJsonObject, ""),
          of(Wanted::Kind::kRegex, "([A-Za-z]{1,20}[ ,.]?){1,200}|[\\u0400-\\u04FF ]+"),
          of(Wanted::Kind::kGbnf, "root ::= line+\nline ::= \"- \" [^\\n]{1,30} \"\\n\"\n"),
          choices};
}

void CompareOn(const std::filesystem::path& path, int steps) {
  const auto tokenizer = LoadTokenizer(path);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto vocabulary = MakeVocabulary(*tokenizer, 0);
  std::mt19937 random(3);
  for (const Wanted& wanted : Cases()) {
    const auto automaton = Compile(wanted);
    ASSERT_TRUE(automaton) << automaton.error().message;
    Constraint constraint(*automaton, vocabulary);
    auto state = constraint.Start();
    for (int step = 0; step < steps; ++step) {
      const auto mask = constraint.Mask(state);
      ASSERT_TRUE(mask) << mask.error().message;
      std::vector<TokenId> allowed;
      for (int i = 0; i < vocabulary->size(); ++i) {
        const TokenId id{i};
        Constraint::State copy = state;
        const bool fits = constraint.Accept(copy, id);
        ASSERT_EQ((*mask)->Allows(id), fits) << "token " << i << " at step " << step;
        if (fits) allowed.push_back(id);
      }
      ASSERT_EQ((*mask)->only.has_value(), allowed.size() == 1);
      ASSERT_TRUE(constraint.Accept(state, allowed[random() % allowed.size()]));
      if (constraint.ended(state)) state = constraint.Start();
    }
  }
}

TEST(RealVocabulary, SmolLm2) {
  NIBBLE_PULLED_OR_SKIP(path, "SmolLM2-135M-Instruct.Q4_1.gguf");
  CompareOn(path, 25);
}

TEST(RealVocabulary, Gemma) {
  NIBBLE_PULLED_OR_SKIP(path, "gemma-3-270m-q4_k_m.gguf");
  CompareOn(path, 8);
}

}  // namespace
}  // namespace nibble::grammar
