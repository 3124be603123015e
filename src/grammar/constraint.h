#pragma once

#include <cstdint>
#include <list>
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
#include "grammar/reach.h"
#include "grammar/vocabulary.h"

namespace nibble::grammar {

// The tokens that may come next.
struct TokenMask {
  std::vector<uint64_t> bits;   // [vocabulary / 64]
  std::optional<TokenId> only;  // where no other is allowed
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

  // What follows whatever is drawn: tokens that alone are allowed, none of them an end, and behind
  // them bytes.
  struct Ahead {
    std::vector<TokenId> only;
    std::string bytes;
  };
  Ahead LookAhead(State state, size_t most_tokens, size_t most_bytes);

  // The bytes that follow whatever is chosen, up to `most`.
  std::string ForcedBytes(State& state, size_t most);

  const Vocabulary& vocabulary() const { return *vocabulary_; }
  // Bytes of what is kept now.
  size_t memory() const { return configurations_->bytes() + mask_bytes_ + reaches_.bytes(); }

 private:
  struct KeptMask {
    Configurations::Id of = Configurations::kDead;
    std::shared_ptr<const TokenMask> mask;
  };
  // Nodes of a tree that are still to be looked at, and where their parent led.
  struct Pending {
    uint32_t begin = 0;
    uint32_t end = 0;
    Configurations::Id from = Configurations::kDead;
  };

  void Settle(State& state);
  std::shared_ptr<TokenMask> Compute(Configurations::Id id);
  // tree: the place of the group's first slice in alive_.
  void AddGroup(Configurations::Id from, const Vocabulary::Group& group, size_t tree,
                std::vector<uint64_t>& bits);
  void FindAlive();
  // known_chars: tokens of at most so many characters are settled.
  void Walk(Configurations::Id id, const TokenTree& tree, const std::vector<bool>& alive,
            int known_chars, std::vector<uint64_t>& bits);
  void Keep(Configurations::Id id, std::shared_ptr<const TokenMask> mask);

  std::shared_ptr<const Automaton> automaton_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  Limits limits_;
  std::shared_ptr<Configurations> configurations_;
  std::list<KeptMask> masks_;  // of configurations_, the last used first
  std::unordered_map<Configurations::Id, std::list<KeptMask>::iterator> mask_of_;
  size_t mask_bytes_ = 0;
  ReachFinder reaches_;
  std::vector<std::vector<bool>> alive_;  // per tree of the vocabulary, once it is needed
  std::vector<Pending> path_;
};

}  // namespace nibble::grammar
