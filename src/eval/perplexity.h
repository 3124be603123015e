#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/ids.h"
#include "base/result.h"
#include "eval/windows.h"

namespace nibble {

class Engine;

struct PerplexityOptions {
  WindowOptions windows = {};
  // Called after every window with the number done, of how many, and the perplexity so far.
  std::function<void(int done, int total, double perplexity)> progress;
};

struct PerplexityResult {
  double perplexity = 0;
  double standard_error = 0;  // perplexity · sqrt(variance of the NLL / (tokens - 1))
  int64_t tokens = 0;         // predictions scored
  int chunks = 0;
};

// ids: the whole text, with BOS in front if the tokenizer adds one. Errors: too short (both
// numbers), a context beyond the engine's, a cancelled or failed request.
Result<PerplexityResult> MeasurePerplexity(Engine& engine, std::span<const TokenId> ids,
                                           const PerplexityOptions& options);

}  // namespace nibble
