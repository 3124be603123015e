#include "eval/task_items.h"

#include <gtest/gtest.h>

#include <random>

namespace nibble {
namespace {

void ExpectRefused(const Status& status, std::initializer_list<const char*> words) {
  ASSERT_FALSE(status);
  for (const char* word : words) {
    EXPECT_NE(status.error().message.find(word), std::string::npos)
        << status.error().message << " lacks " << word;
  }
}

Status Choices(ChoiceTask task, std::string_view text) {
  const auto items = ParseChoiceItems(task, text, 0);
  return items ? Status{} : Status(std::unexpected(items.error()));
}

Status Prompts(std::string_view text) {
  const auto items = ParsePromptItems(text, 0);
  return items ? Status{} : Status(std::unexpected(items.error()));
}

TEST(TaskItems, HellaswagIsSixLines) {
  const auto items =
      ParseChoiceItems(ChoiceTask::kHellaswag, "Roof: he\r\n3\r\na\r\nb b\r\nc\r\nd\r\n\n", 0);
  ASSERT_TRUE(items) << items.error().message;
  ASSERT_EQ(items->size(), 1U);
  EXPECT_EQ(items->front().context, "Roof: he");
  EXPECT_EQ(items->front().answer, 3);
  EXPECT_EQ(items->front().endings, (std::vector<std::string>{"a", "b b", "c", "d"}));
  ExpectRefused(Choices(ChoiceTask::kHellaswag, "c\n0\na\nb\nc\nd\nmore\n"),
                {"line 7", "six lines"});
  ExpectRefused(Choices(ChoiceTask::kHellaswag, "c\n4\na\nb\nc\nd"), {"line 2", "0 to 3", "'4'"});
  ExpectRefused(Choices(ChoiceTask::kHellaswag, "c\n0\na\n\nc\nd"), {"line 4", "empty"});
  ExpectRefused(Choices(ChoiceTask::kHellaswag, ""), {"no items"});
}

// llama-perplexity: std::uniform_int_distribution over those left, std::mt19937 with seed 1.
TEST(TaskItems, HellaswagDrawsAsLlamaPerplexity) {
  constexpr size_t kItems = 1000;
  std::string text;
  std::vector<int> left;
  for (size_t i = 0; i < kItems; ++i) {
    text += "c" + std::to_string(i) + "\n0\na\nb\nc\nd\n";
    left.push_back(static_cast<int>(i));
  }
  const auto items = ParseChoiceItems(ChoiceTask::kHellaswag, text, 200);
  ASSERT_TRUE(items);
  ASSERT_EQ(items->size(), 200U);
  std::mt19937 random(1);
  for (const ChoiceItem& item : *items) {
    std::uniform_int_distribution<size_t> draw(0, left.size() - 1);
    const auto at = left.begin() + static_cast<ptrdiff_t>(draw(random));
    EXPECT_EQ(item.context, "c" + std::to_string(*at));
    EXPECT_EQ(item.line, 6 * *at + 1);
    left.erase(at);
  }
}

TEST(TaskItems, LambadaEndsInItsLastWord) {
  const auto items = ParseChoiceItems(ChoiceTask::kLambada,
                                      "{\"text\": \"a b\\n\\nc stone\"}\n\n{\"text\": \"x y\"}", 0);
  ASSERT_TRUE(items) << items.error().message;
  ASSERT_EQ(items->size(), 2U);
  EXPECT_EQ(items->front().context, "a b\n\nc");
  EXPECT_EQ(items->front().endings, std::vector<std::string>{"stone"});
  EXPECT_EQ(items->back().line, 3);
  ExpectRefused(Choices(ChoiceTask::kLambada, "{\"text\": \"alone\"}"), {"line 1", "two words"});
  ExpectRefused(Choices(ChoiceTask::kLambada, "{\"text\": \"a b\"}\n{\"text\": 5}"),
                {"line 2", "'text'", "string"});
  ExpectRefused(Choices(ChoiceTask::kLambada, "[1]"), {"line 1", "object", "array"});
  ExpectRefused(Choices(ChoiceTask::kLambada, "{\"text\": \"a"), {"line 1"});
}

TEST(TaskItems, ArcAndMultipleChoice) {
  const std::string arc =
      R"({"question": "Q?", "choices": {"text": ["x", "y"], "label": ["1", "2"]}, "answerKey": "2"})";
  const auto items = ParseChoiceItems(ChoiceTask::kArc, arc + "\n" + arc, 1);
  ASSERT_TRUE(items) << items.error().message;
  ASSERT_EQ(items->size(), 1U);
  EXPECT_EQ(items->front().context, "Question: Q?\nAnswer:");
  EXPECT_EQ(items->front().answer, 1);
  const auto plain = ParseChoiceItems(
      ChoiceTask::kMultipleChoice, R"({"question": "Q?", "choices": ["x", "y"], "answer": 0})", 0);
  ASSERT_TRUE(plain) << plain.error().message;
  EXPECT_EQ(plain->front().context, "Q?");
  ExpectRefused(Choices(ChoiceTask::kMultipleChoice,
                        R"({"question": "Q?", "choices": ["x", "y"], "answer": 2})"),
                {"line 1", "'answer'", "0 to 1", "2"});
  ExpectRefused(
      Choices(ChoiceTask::kMultipleChoice, R"({"question": "Q?", "choices": ["x"], "answer": 0})"),
      {"'choices'", "at least 2"});
  std::string wrong = arc;
  wrong.replace(wrong.rfind('2'), 1, "C");
  ExpectRefused(Choices(ChoiceTask::kArc, wrong), {"'answerKey'", "'C'"});
  ExpectRefused(Choices(ChoiceTask::kArc, R"({"question": "Q?", "answerKey": "A"})"),
                {"'choices' is missing"});
}

TEST(TaskItems, ANumberMayBeExpectedAsOne) {
  const auto items = ParsePromptItems(R"({"prompt": "1+6=", "expected": 7, "rule": "number"})"
                                      "\n"
                                      R"({"prompt": "1/2=", "expected": 0.5, "rule": "exact"})",
                                      0);
  ASSERT_TRUE(items) << items.error().message;
  EXPECT_EQ(items->front().expected, "7");
  EXPECT_EQ(items->back().expected, "0.5");
  ExpectRefused(Prompts(R"({"prompt": "a", "expected": [7], "rule": "number"})"), {"'expected'"});
}

TEST(TaskItems, PromptsAndGsm8k) {
  const auto items = ParsePromptItems(
      R"({"prompt": "1+1=", "expected": "2", "rule": "number", "max_tokens": 3, "stop": "\n"})"
      "\n"
      R"({"question": "How many?", "answer": "2 + 16 = <<2+16=18>>18\n#### 18"})",
      0);
  ASSERT_TRUE(items) << items.error().message;
  ASSERT_EQ(items->size(), 2U);
  EXPECT_EQ(items->front().max_tokens, 3);
  EXPECT_EQ(items->front().stop, std::vector<std::string>{"\n"});
  EXPECT_EQ(items->back().prompt, "Question: How many?\nAnswer:");
  EXPECT_EQ(items->back().expected, "18");
  EXPECT_EQ(items->back().rule, AnswerRule::kNumber);
  ExpectRefused(Prompts(R"({"prompt": "a", "expected": "b", "rule": "like"})"),
                {"line 1", "'rule'", "exact, number or regex", "'like'"});
  ExpectRefused(Prompts(R"({"prompt": "a", "expected": "(", "rule": "regex"})"),
                {"line 1", "'expected'"});
  ExpectRefused(Prompts(R"({"prompt": "a", "expected": "none", "rule": "number"})"),
                {"'expected'", "number", "'none'"});
  ExpectRefused(Prompts(R"({"prompt": "a", "expected": "b", "rule": "exact", "max_tokens": 0})"),
                {"'max_tokens'", "found 0"});
  ExpectRefused(Prompts(R"({"question": "a", "answer": "18"})"), {"'answer'", "####"});
}

}  // namespace
}  // namespace nibble
