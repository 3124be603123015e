#include "engine/prompt_logprobs.h"

#include <utility>

#include "engine/candidates.h"
#include "kernels/kernel_table.h"
#include "platform/cpu.h"

namespace nibble {

PromptLogprobs::PromptLogprobs(std::span<const TokenId> prompt, int top)
    // An engine runs, so that there is one to choose; all give the same bits.
    : kernels_(&KernelsFor(ChooseIsa().value_or(Isa::kScalar))), top_(top) {
  tokens_.reserve(prompt.size());
  for (const TokenId id : prompt) {
    TokenEvent& token = tokens_.emplace_back();
    token.id = id;
  }
}

void PromptLogprobs::Rows(Position first, MatrixView<float> logits) {
  for (int r = 0; r < logits.rows; ++r) {
    const size_t next = static_cast<size_t>(first.value()) + static_cast<size_t>(r) + 1;
    if (next >= tokens_.size()) return;  // rows of the answer
    TokenEvent& token = tokens_[next];
    Logprobs of = LogprobsOf(*kernels_, logits.row_span(r), token.id, top_);
    token.logprob = of.own;
    token.top = std::move(of.top);
  }
}

}  // namespace nibble
