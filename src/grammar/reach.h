#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/configurations.h"
#include "grammar/vocabulary.h"

namespace nibble::grammar {

// How far texts of the vocabulary's kinds go on from a configuration.
struct Reach {
  struct Chars {
    int pass = 0;          // every text of at most so many characters may follow
    int stop = INT32_MAX;  // no text of so many characters or more may; INT32_MAX: not known
  };
  std::array<Chars, Vocabulary::kKinds> of;
};

// Finds them, and keeps what it found; for configurations of one object between calls of Forget.
class ReachFinder {
 public:
  explicit ReachFinder(const Automaton& automaton);

  const Reach& Find(Configurations& configurations, Configurations::Id id);
  void Forget() { known_.clear(); }
  size_t bytes() const { return known_.size() * (sizeof(Reach) + 48); }

 private:
  using Ids = std::vector<Configurations::Id>;

  Reach Explore(Configurations& configurations, Configurations::Id id);
  Reach::Chars ExploreKind(Configurations& configurations, Configurations::Id id,
                           Vocabulary::Kind kind);
  // What one more character leads to from anywhere in `from`. Sets `all` to false where one of them
  // leads nowhere.
  Ids Step(Configurations& configurations, const Ids& from, Vocabulary::Kind kind, bool& all);
  void StepBeyondAscii(Configurations& configurations, const Ids& from, Ids& next, bool& all);

  const Automaton& automaton_;
  std::array<std::vector<Automaton::Class>, Vocabulary::kKinds> classes_;  // one-byte characters
  std::unordered_map<Configurations::Id, Reach> known_;
};

}  // namespace nibble::grammar
