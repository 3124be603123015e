#pragma once

#include <span>
#include <vector>

#include "engine/request.h"

namespace nibble {

struct KernelTable;

// Log-probabilities of a prompt's own tokens, each given those before it, from the logits that
// Request::logits gets. Read it when OnFinish has come.
class PromptLogprobs : public PositionLogitsSink {
 public:
  // top: as Request::logprobs, at least 0.
  PromptLogprobs(std::span<const TokenId> prompt, int top);

  void Rows(Position first, MatrixView<float> logits) override;

  // [prompt]; the first token has no log-probability, its number means nothing.
  const std::vector<TokenEvent>& tokens() const { return tokens_; }

 private:
  const KernelTable* kernels_;
  int top_;
  std::vector<TokenEvent> tokens_;
};

}  // namespace nibble
