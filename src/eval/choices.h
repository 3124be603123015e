#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "eval/statistics.h"
#include "eval/task_items.h"

namespace nibble {

class Engine;

// What a model makes of one item's endings: [endings] each, natural logarithms.
struct ChoiceScore {
  // Σ ln p of the tokens behind the context's own: lm-evaluation-harness's log-likelihood.
  std::vector<double> sum;
  // Mean ln p of the tokens behind those that all endings share: llama-perplexity's.
  std::vector<double> mean;
  // Every token of `sum` is the most probable one.
  std::vector<uint8_t> greedy;
  int64_t tokens = 0;  // computed or cached, of all endings
};

// Called after every item with the number done, of how many.
using TaskProgress = std::function<void(int done, int total)>;

// Each ending behind its context as a sequence of its own (with BOS where the model adds one), many
// at a time; endings of an item share the context's pages in the prefix cache. Errors: an item that
// does not fit the context (its line, both numbers), those of the engine.
Result<std::vector<ChoiceScore>> ScoreChoices(Engine& engine, std::span<const ChoiceItem> items,
                                              const TaskProgress& progress);

// Right answers, 1 or 0 an item, by three rules; ties go to the first ending.
struct ChoiceAnswers {
  std::vector<uint8_t> mean;      // highest mean per token (llama-perplexity)
  std::vector<uint8_t> sum;       // highest sum (acc of lm-evaluation-harness)
  std::vector<uint8_t> per_char;  // highest sum per character of the ending (its acc_norm)
  std::vector<uint8_t> greedy;    // the right ending is what greedy decoding gives (LAMBADA)
  std::vector<double> loss;       // -sum of the right ending
};
ChoiceAnswers JudgeChoices(std::span<const ChoiceItem> items, std::span<const ChoiceScore> scores);

}  // namespace nibble
