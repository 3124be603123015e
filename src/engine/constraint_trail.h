#pragma once

#include <deque>
#include <memory>
#include <span>

#include "grammar/constraint.h"

namespace nibble {

// Where an answer is under its constraint, and where it was behind each of its last tokens, so that
// tokens can be taken back. A value; copies are independent.
class ConstraintTrail {
 public:
  explicit ConstraintTrail(std::shared_ptr<grammar::Constraint> constraint)
      : constraint_(std::move(constraint)) {
    states_.push_back(constraint_->Start());
  }

  // False when the constraint does not allow the token here; nothing is changed then.
  bool Accept(TokenId token) {
    grammar::Constraint::State state = states_.back();
    if (!constraint_->Accept(state, token)) return false;
    states_.push_back(std::move(state));
    if (states_.size() > kKept) states_.pop_front();
    return true;
  }

  // Takes the last n tokens back. answer: those that stay, all of which were accepted.
  void Rollback(int n, std::span<const TokenId> answer) {
    if (static_cast<size_t>(n) < states_.size()) {
      states_.erase(states_.end() - n, states_.end());
      return;
    }
    states_.assign(1, constraint_->Start());
    for (const TokenId token : answer) Accept(token);
  }

  Result<std::shared_ptr<const grammar::TokenMask>> Mask() {
    return constraint_->Mask(states_.back());
  }
  // Whether nothing but an end token may follow.
  bool MustEnd() const { return constraint_->MustEnd(states_.back()); }
  // What follows whatever is drawn: to be drafted.
  using Ahead = grammar::Constraint::Ahead;
  Ahead LookAhead(size_t most_tokens, size_t most_bytes) {
    return constraint_->LookAhead(states_.back(), most_tokens, most_bytes);
  }

 private:
  static constexpr size_t kKept = 256;

  std::shared_ptr<grammar::Constraint> constraint_;
  std::deque<grammar::Constraint::State> states_;  // never empty
};

}  // namespace nibble
