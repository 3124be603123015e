#include "engine/sampler_state.h"

#include <utility>

#include "base/check.h"

namespace nibble {

SamplerState::SamplerState(int window, SharedTokens prompt)
    : window_(window), prompt_(std::move(prompt)) {
  Counts counts;
  for (size_t i = WindowBegin(prompt_size()); i < prompt_size(); ++i) ++counts[token(i)];
  prompt_counts_ = std::make_shared<const Counts>(std::move(counts));
}

size_t SamplerState::WindowBegin(size_t size) const {
  const size_t window = window_ < 0 ? size : static_cast<size_t>(window_);
  return size > window ? size - window : 0;
}

void SamplerState::Accept(TokenId accepted, std::optional<double> mirostat) {
  answer_.push_back(accepted);
  if (mirostat) mirostat_.push_back(*mirostat);
  if (trail_) NIBBLE_CHECK(trail_->Accept(accepted));  // it was drawn under the mask
  if (window_ == 0) return;
  Change(accepted, 1);
  const size_t begin = WindowBegin(static_cast<size_t>(position()));
  if (begin > 0) Change(token(begin - 1), -1);
}

void SamplerState::Rollback(int n) {
  NIBBLE_CHECK(n >= 0 && static_cast<size_t>(n) <= answer_.size());
  const int taken_back = n;
  for (; n > 0; --n) {
    const size_t begin = WindowBegin(static_cast<size_t>(position()));
    if (window_ != 0) {
      if (begin > 0) Change(token(begin - 1), 1);
      Change(answer_.back(), -1);
    }
    if (mirostat_.size() == answer_.size()) mirostat_.pop_back();
    answer_.pop_back();
  }
  if (trail_) trail_->Rollback(taken_back, answer_);
}

void SamplerState::Change(TokenId token, int by) {
  const auto found = changes_.try_emplace(token, 0).first;
  found->second += by;
  if (found->second == 0) changes_.erase(found);
}

}  // namespace nibble
