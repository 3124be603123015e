#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/shared_tokens.h"
#include "base/token_list.h"
#include "engine/constraint_trail.h"

namespace nibble {

// What samplers remember of one answer: its tokens, prompt included, and how often each occurs in
// the window that penalties look at. A value: copying it is a checkpoint. Copies share the prompt
// and its counts, so that one costs what the answer costs, however long the prompt is.
class SamplerState {
 public:
  // window: tokens that count for penalties; -1 all, 0 none. No prompt is an empty one.
  explicit SamplerState(int window, SharedTokens prompt = nullptr);

  // From here on the answer keeps to the constraint: on the engine's thread, before any token.
  void Constrain(std::shared_ptr<grammar::Constraint> constraint) {
    trail_.emplace(std::move(constraint));
  }
  bool constrained() const { return trail_.has_value(); }
  // Where the answer is under its constraint; its masks are made when they are asked for.
  ConstraintTrail& trail() const { return *trail_; }

  // mirostat: its target of surprise behind the token, where it is in use.
  void Accept(TokenId token, std::optional<double> mirostat = std::nullopt);
  // Takes back the last n accepted tokens, as if they had never been. The prompt stays.
  void Rollback(int n);

  int position() const { return static_cast<int>(prompt_size() + answer_.size()); }
  TokenList tokens() const {
    return {.prompt = prompt_ ? std::span<const TokenId>(*prompt_) : std::span<const TokenId>(),
            .answer = answer_};
  }
  // What was accepted last; nothing before the first token.
  std::optional<double> mirostat() const {
    return mirostat_.empty() ? std::nullopt : std::optional(mirostat_.back());
  }

  // visit(TokenId, int count) for every token inside the window, in no order.
  template <class Visit>
  void VisitCounts(Visit&& visit) const {
    for (const auto& [token, count] : *prompt_counts_) {
      const auto changed = changes_.find(token);
      const int now = count + (changed == changes_.end() ? 0 : changed->second);
      if (now > 0) visit(token, now);
    }
    for (const auto& [token, count] : changes_) {
      if (!prompt_counts_->contains(token)) visit(token, count);
    }
  }

 private:
  using Counts = std::unordered_map<TokenId, int>;

  size_t prompt_size() const { return prompt_ ? prompt_->size() : 0; }
  TokenId token(size_t i) const { return tokens()[static_cast<int>(i)]; }
  void Change(TokenId token, int by);
  // First token inside the window when `size` tokens are known.
  size_t WindowBegin(size_t size) const;

  int window_;
  SharedTokens prompt_;
  std::shared_ptr<const Counts> prompt_counts_;  // within the window at the prompt's end, all > 0
  std::vector<TokenId> answer_;
  std::vector<double> mirostat_;  // [answer_] where mirostat is in use, else empty
  Counts changes_;                // to prompt_counts_ since; none is 0
  mutable std::optional<ConstraintTrail> trail_;
};

}  // namespace nibble
