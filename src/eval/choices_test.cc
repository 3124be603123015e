#include "eval/choices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "eval/fixture_test.h"
#include "eval/generated_tasks.h"
#include "eval/paired.h"
#include "tokenizer/tokenizer.h"

namespace nibble {
namespace {

using testing::Logprobs;
using testing::OpenExact;

std::vector<TokenId> Encode(Engine& engine, const std::string& text) {
  return engine.tokenizer().Encode(text).value();
}

// The demonstration GPT's tokens are characters.
TEST(Choices, ScoresAreThoseOfTheFormula) {
  const auto engine = OpenExact("models/shakespeare");
  std::vector<ChoiceItem> items;
  for (const char* context :
       {"ROMEO:\nBut soft, what light through yonder window breaks? It is the", "My lord,",
        "O Romeo, Romeo, wherefore art "}) {
    ChoiceItem item;
    item.context = context;
    item.endings = {"east, and Juliet is the sun", "ear", "eastern", "night"};
    item.answer = 1;
    items.push_back(item);
  }
  int calls = 0;
  const auto scores = ScoreChoices(*engine, items, [&](int done, int total) {
    EXPECT_EQ(done, ++calls);
    EXPECT_EQ(total, 3);
  });
  ASSERT_TRUE(scores) << scores.error().message;
  ASSERT_EQ(scores->size(), items.size());
  EXPECT_EQ(calls, 3);
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string& context = items[i].context;
    const size_t spaces = context.ends_with(' ') ? 1 : 0;
    for (size_t e = 0; e < 4; ++e) {
      const auto ids = Encode(*engine, context + " " + items[i].endings[e]);
      ASSERT_EQ(ids.size(), context.size() + 1 + items[i].endings[e].size());
      const auto rows = Logprobs(*engine, ids);
      double sum = 0;
      double behind = 0;
      bool greedy = true;
      for (size_t at = context.size() - spaces; at < ids.size(); ++at) {
        const auto& row = rows[at - 1];
        const auto id = static_cast<size_t>(ids[at].value());
        sum += row[id];
        if (at > context.size()) behind += row[id];  // all endings share the space
        greedy &= std::ranges::max_element(row) - row.begin() == static_cast<ptrdiff_t>(id);
      }
      EXPECT_NEAR((*scores)[i].sum[e], sum, 1e-4);
      EXPECT_NEAR((*scores)[i].mean[e], behind / static_cast<double>(items[i].endings[e].size()),
                  1e-5);
      EXPECT_EQ((*scores)[i].greedy[e] != 0, greedy);
    }
  }
}

TEST(Choices, OneEndingIsGreedyIfTheModelSaysSo) {
  const auto engine = OpenExact("models/shakespeare");
  const std::string context = "JULIET:\nO Romeo, Romeo, wherefore";
  std::string text = context;
  for (int i = 0; i < 5; ++i) {
    const auto row = Logprobs(*engine, Encode(*engine, text)).back();
    const TokenId best{static_cast<int32_t>(std::ranges::max_element(row) - row.begin())};
    text += engine->tokenizer().Bytes(best);
  }
  const std::string word = text.substr(context.size() + 1);
  ASSERT_EQ(text[context.size()], ' ');
  const std::vector<ChoiceItem> items = {
      {.line = 1, .context = context, .endings = {word}},
      {.line = 2, .context = context, .endings = {"Q" + word}},
  };
  const auto scores = ScoreChoices(*engine, items, {});
  ASSERT_TRUE(scores);
  const ChoiceAnswers answers = JudgeChoices(items, *scores);
  EXPECT_EQ(answers.greedy, (std::vector<uint8_t>{1, 0}));
  EXPECT_EQ(answers.loss[0], -(*scores)[0].sum[0]);
  EXPECT_LT(answers.loss[0], answers.loss[1]);

  // The same word, generated.
  std::vector<PromptItem> prompts(1);
  prompts[0].prompt = context;
  prompts[0].expected = word;
  prompts[0].max_tokens = 5;
  prompts.push_back(prompts[0]);
  prompts[1].expected = word + "Q";
  const auto generated = AnswerPrompts(*engine, prompts, {});
  ASSERT_TRUE(generated) << generated.error().message;
  EXPECT_EQ((*generated)[0].text, " " + word);
  EXPECT_TRUE((*generated)[0].right);
  EXPECT_TRUE((*generated)[0].cut);
  EXPECT_EQ((*generated)[0].tokens, 5);
  EXPECT_FALSE((*generated)[1].right);
}

TEST(Choices, WhatDoesNotFitNamesItsLine) {
  const auto engine = OpenExact("models/shakespeare");
  const std::vector<ChoiceItem> items = {
      {.line = 7, .context = std::string(300, 'a'), .endings = {"b", "c"}}};
  const auto scores = ScoreChoices(*engine, items, {});
  ASSERT_FALSE(scores);
  EXPECT_NE(scores.error().message.find("line 7: 302 tokens"), std::string::npos)
      << scores.error().message;
  std::vector<PromptItem> prompts(1);
  prompts[0].line = 9;
  prompts[0].prompt = std::string(300, 'a');
  const auto answers = AnswerPrompts(*engine, prompts, {});
  ASSERT_FALSE(answers);
  EXPECT_NE(answers.error().message.find("line 9: 300 tokens"), std::string::npos);
}

TEST(Choices, ThreeRulesMayDisagree) {
  // Endings of 2, 4 and 5 characters (the last of 6 bytes).
  const std::vector<ChoiceItem> items = {
      {.line = 1, .context = "c", .endings = {"ab", "abcd", "\u00e9bcde"}, .answer = 2}};
  const std::vector<ChoiceScore> scores = {
      {.sum = {-3, -8, -7}, .mean = {-3, -2, -2.5}, .greedy = {1, 0, 0}, .tokens = 9}};
  const ChoiceAnswers answers = JudgeChoices(items, scores);
  EXPECT_EQ(answers.sum[0], 0);       // the first has -3
  EXPECT_EQ(answers.mean[0], 0);      // the second has -2
  EXPECT_EQ(answers.per_char[0], 1);  // -1.5, -2, -1.4
  EXPECT_EQ(answers.greedy[0], 0);
}

TEST(GeneratedTasks, RulesOfJudgement) {
  struct Case {
    AnswerRule rule;
    const char* expected;
    const char* answer;
    bool right;
  };
  const std::vector<Case> cases = {
      {AnswerRule::kExact, "Paris", " Paris\n", true},
      {AnswerRule::kExact, "Paris", "paris", false},
      {AnswerRule::kNumber, "18", "9 * 2 = $18.", true},
      {AnswerRule::kNumber, "18", "It is 18, not 19", false},
      {AnswerRule::kNumber, "1,234.50", "about 01234.5 dollars", true},
      {AnswerRule::kNumber, "70000", "$70,000", true},
      {AnswerRule::kNumber, "-3", "x = -3", true},
      {AnswerRule::kNumber, "3", "x = -3", false},
      {AnswerRule::kNumber, "3", "10-3", true},
      {AnswerRule::kNumber, "0", "-0.00", true},
      {AnswerRule::kNumber, "0.5", "00.50", true},
      {AnswerRule::kNumber, "18", "none", false},
      {AnswerRule::kRegex, "^(yes|ja)\\b", "yes, it is", true},
      {AnswerRule::kRegex, "^(yes|ja)\\b", "yesterday", false},
  };
  for (const Case& c : cases) {
    PromptItem item;
    item.rule = c.rule;
    item.expected = c.expected;
    const auto right = JudgeAnswer(item, c.answer);
    ASSERT_TRUE(right) << right.error().message;
    EXPECT_EQ(*right, c.right) << c.expected << " / " << c.answer;
  }
}

TEST(Paired, ExactTestOfGainsAndLosses) {
  std::vector<uint8_t> candidate(100, 1);
  std::vector<uint8_t> base(100, 1);
  EXPECT_EQ(ComparePaired(candidate, base).p, 1);
  for (size_t i = 0; i < 12; ++i) candidate[i] = 0;
  base[20] = 0;
  const PairedAnswers worse = ComparePaired(candidate, base);
  EXPECT_EQ(worse.lost, 12);
  EXPECT_EQ(worse.gained, 1);
  EXPECT_NEAR(worse.p, 2 * (1 + 13) / 8192.0, 1e-12);  // 2 Σ C(13, k) / 2^13, k = 0, 1
  EXPECT_NEAR(worse.difference.mean, -0.11, 1e-12);
  EXPECT_EQ(Verdict(worse),
            "worse, p = 0.0034: 12 answers lost, 1 gained of 100 (-11.0 ± 6.8 points)");
  EXPECT_EQ(Verdict(ComparePaired(base, candidate)).substr(0, 6), "better");
  for (size_t i = 0; i < 10; ++i) candidate[i] = 1;
  const PairedAnswers unsure = ComparePaired(candidate, base);
  EXPECT_EQ(unsure.p, 1);  // 2 against 1
  EXPECT_EQ(Verdict(unsure).substr(0, 25), "no difference seen, p = 1");
}

TEST(Paired, ShareAndItsError) {
  const std::vector<uint8_t> right = {1, 0, 1, 1};
  EXPECT_NEAR(ShareOf(right).mean, 0.75, 1e-12);
  EXPECT_NEAR(ShareOf(right).se, 0.25, 1e-12);  // sqrt(0.75 · 0.25 / 3)
  EXPECT_EQ(ShareOf({}).mean, 0);
  EXPECT_TRUE(std::isnan(ShareOf(std::vector<uint8_t>{1}).se));  // one says nothing of its error
}

}  // namespace
}  // namespace nibble
