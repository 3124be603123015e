#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "grammar/automaton.h"
#include "grammar/configurations.h"
#include "grammar/vocabulary.h"

namespace nibble::grammar {

// The tokens that may come next.
struct TokenMask {
  std::vector<uint64_t> bits;   // [vocabulary / 64]
  int count = 0;                // tokens that are allowed
  std::optional<TokenId> only;  // when count is 1: that token
  bool Allows(TokenId id) const {
    const auto i = static_cast<size_t>(id.value());
    return (bits[i / 64] >> (i % 64) & 1) != 0;
  }
};

struct ConstraintLimits {
  size_t max_configuration_bytes = size_t{16} << 20;  // soft: between tokens they begin anew
  size_t max_mask_bytes = size_t{8} << 20;
  // Edges that are followed to find the configurations of one mask (about 10 ns each), before the
  // answer ends with an error.
  int64_t max_work = 20'000'000;
};

// What an answer must be, for one vocabulary: the tokens that may follow a text. Masks and
// configurations are kept and shared by all states; for one thread at a time.
class Constraint {
 public:
  using Limits = ConstraintLimits;

  Constraint(std::shared_ptr<const Automaton> automaton,
             std::shared_ptr<const Vocabulary> vocabulary, const Limits& limits = {});

  // Where one answer is. A value: a copy is a checkpoint, and costs a counter.
  class State {
   private:
    friend class Constraint;
    std::shared_ptr<Configurations> configurations_;
    Configurations::Id id_ = Configurations::kDead;
    bool ended_ = false;
  };

  State Start();

  // The tokens that may follow: every one whose bytes the grammar lets follow here, and the end
  // tokens where it may end. Never empty: kBadInput when no token of the vocabulary fits what must
  // follow, or when the grammar takes more work than the limit (both name what was found).
  Result<std::shared_ptr<const TokenMask>> Mask(State& state);

  // Goes on by a token. False, and the state is as before, where its mask does not allow it.
  bool Accept(State& state, TokenId token);
  // The same with bytes of text.
  bool AcceptBytes(State& state, std::string_view bytes);

  // Whether the text may end here.
  bool MayEnd(const State& state) const;
  // Whether it must: nothing but an end token may follow.
  bool MustEnd(const State& state) const;
  bool ended(const State& state) const { return state.ended_; }

  // The bytes that follow whatever is chosen, up to `most`.
  std::string ForcedBytes(State& state, size_t most);

  const Vocabulary& vocabulary() const { return *vocabulary_; }
  // Bytes of what is kept now.
  size_t memory() const { return configurations_->bytes() + mask_bytes_; }

 private:
  struct KeptMask {
    std::shared_ptr<const TokenMask> mask;
    uint64_t used = 0;
  };
  // How many characters of each kind all texts of which may follow.
  struct Reach {
    int chars[Vocabulary::kKinds] = {};
  };

  void Settle(State& state);
  std::shared_ptr<TokenMask> Compute(Configurations::Id id);
  Reach FindReach(Configurations::Id id);
  int ReachOf(Configurations::Id id, Vocabulary::Kind kind);
  int StringReach(Configurations::Id id);
  void Walk(Configurations::Id id, const TokenTree& tree, std::vector<uint64_t>& bits);
  void Keep(Configurations::Id id, std::shared_ptr<const TokenMask> mask);

  std::shared_ptr<const Automaton> automaton_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  Limits limits_;
  std::shared_ptr<Configurations> configurations_;
  std::unordered_map<Configurations::Id, KeptMask> masks_;  // of configurations_
  size_t mask_bytes_ = 0;
  uint64_t clock_ = 0;
  std::vector<Automaton::Class> classes_of_kind_[Vocabulary::kKinds];  // one-byte characters
  std::vector<Configurations::Id> path_;
};

}  // namespace nibble::grammar
