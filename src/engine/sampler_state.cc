#include "engine/sampler_state.h"

#include "base/check.h"

namespace nibble {

SamplerState::SamplerState(int window, std::span<const TokenId> prompt) : window_(window) {
  for (TokenId token : prompt) Accept(token);
}

size_t SamplerState::WindowBegin(size_t size) const {
  const size_t window = window_ < 0 ? size : static_cast<size_t>(window_);
  return size > window ? size - window : 0;
}

void SamplerState::Accept(TokenId token) {
  tokens_.push_back(token);
  if (window_ == 0) return;
  ++counts_[token];
  const size_t begin = WindowBegin(tokens_.size());
  if (begin > 0) Forget(tokens_[begin - 1]);
}

void SamplerState::Rollback(int n) {
  NIBBLE_CHECK(n >= 0 && n <= position());
  for (; n > 0; --n) {
    const size_t begin = WindowBegin(tokens_.size());
    if (window_ != 0) {
      if (begin > 0) ++counts_[tokens_[begin - 1]];
      Forget(tokens_.back());
    }
    tokens_.pop_back();
  }
}

void SamplerState::Forget(TokenId token) {
  const auto found = counts_.find(token);
  if (--found->second == 0) counts_.erase(found);
}

}  // namespace nibble
