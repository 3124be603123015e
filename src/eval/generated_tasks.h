#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "eval/choices.h"
#include "eval/task_items.h"

namespace nibble {

class Engine;

struct GeneratedAnswer {
  std::string text;
  int tokens = 0;    // generated
  bool cut = false;  // max_tokens or the context ended it
  bool right = false;
};

// Greedy answers to all prompts, many at a time, and their judgement. Errors: a prompt that does
// not fit the context (its line, both numbers), those of the engine, an expression that backtracks
// beyond its bounds.
Result<std::vector<GeneratedAnswer>> AnswerPrompts(Engine& engine,
                                                   std::span<const PromptItem> items,
                                                   const TaskProgress& progress);

// exact: the same text but for white space at both ends. number: the last number of the answer is
// the first of `expected`; "$1,234.50" is 1234.5. regex: the expression matches somewhere in the
// answer.
Result<bool> JudgeAnswer(const PromptItem& item, std::string_view answer);

}  // namespace nibble
