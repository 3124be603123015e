#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"

namespace nibble {

// What samplers remember of one answer: its tokens, prompt included, and how often each occurs in
// the window that penalties look at. A value: copying it is a checkpoint.
class SamplerState {
 public:
  // window: tokens that count for penalties; -1 all, 0 none.
  explicit SamplerState(int window, std::span<const TokenId> prompt = {});

  void Accept(TokenId token);
  // Takes back the last n accepted tokens, as if they had never been.
  void Rollback(int n);

  int position() const { return static_cast<int>(tokens_.size()); }
  const std::unordered_map<TokenId, int>& counts() const { return counts_; }

 private:
  void Forget(TokenId token);
  // First token inside the window when `size` tokens are known.
  size_t WindowBegin(size_t size) const;

  int window_;
  std::vector<TokenId> tokens_;
  std::unordered_map<TokenId, int> counts_;  // within the window, all > 0
};

}  // namespace nibble
