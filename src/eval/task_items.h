#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nibble {

// Tasks whose answers are scored by their log-probabilities, and their file forms
// (docs/quality.md).
enum class ChoiceTask : uint8_t {
  kHellaswag,       // llama-perplexity's text form: six lines an item
  kLambada,         // {"text"}: the last word is the ending
  kArc,             // {"question", "choices": {"text", "label"}, "answerKey"}
  kMultipleChoice,  // {"question", "choices": [text …], "answer": index}, or ARC's members
};

// A beginning and how it may go on; a space stands between the two.
struct ChoiceItem {
  int line = 0;  // where it begins in its file, from 1
  std::string context;
  std::vector<std::string> endings;
  int answer = 0;  // of endings
};

// How an answer is judged (generated_tasks.h).
enum class AnswerRule : uint8_t { kExact, kNumber, kRegex };

// A question that is answered by generating.
struct PromptItem {
  int line = 0;
  std::string prompt;
  std::string expected;
  AnswerRule rule = AnswerRule::kExact;
  int max_tokens = 256;
  std::vector<std::string> stop;
};

// Items of a task file. limit 0: all, else the first ones, of HellaSwag those that llama-perplexity
// draws. Errors name the line, what was expected and what was found; none: "no items".
Result<std::vector<ChoiceItem>> ParseChoiceItems(ChoiceTask task, std::string_view text, int limit);

// Lines {"prompt", "expected" (a text, or a number as JSON), "rule": "exact"|"number"|"regex"} with
// "max_tokens" and "stop" (a text or several) where wanted; or GSM8K's {"question", "answer": "…
// #### 18"}. The same errors, and that of an expression in "expected".
Result<std::vector<PromptItem>> ParsePromptItems(std::string_view text, int limit);

}  // namespace nibble
