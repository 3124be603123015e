#include "engine/prompt_logprobs.h"

#include <algorithm>

#include "engine/candidates.h"
#include "kernels/elementwise.h"
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
    const std::span<const float> row = logits.row_span(r);
    const double total = ComputeLogSumExp(*kernels_, row).log_sum_exp;
    TokenEvent& token = tokens_[next];
    const auto logprob = [&](float logit) { return static_cast<float>(double{logit} - total); };
    token.logprob = logprob(row[static_cast<size_t>(token.id.value())]);
    if (top_ == 0) continue;
    Candidates top = TopOf(*kernels_, row, top_);
    std::ranges::sort(top, MoreProbable);
    for (const Candidate& candidate : top) {
      token.top.push_back({candidate.id, logprob(candidate.logit)});
    }
  }
}

}  // namespace nibble
