#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/ids.h"
#include "base/result.h"

namespace nibble {

class Engine;

// How a text is cut and which predictions count; figures of the two do not compare.
enum class PerplexityProtocol {
  // llama.cpp: windows of `context` tokens, the first replaced by BOS where the model adds one, the
  // second half of each scored (context - context/2 - 1 predictions).
  kLlama,
  // GPTQ, AWQ, SmoothQuant papers: one BOS at the very start, every prediction of a window scored,
  // exp of the mean over windows.
  kGptq,
};

struct PerplexityOptions {
  PerplexityProtocol protocol = PerplexityProtocol::kLlama;
  int context = 512;
  int chunks = 0;  // windows from the start; 0: all
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
