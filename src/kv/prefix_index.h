#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/token_list.h"
#include "kv/page_pool.h"

namespace nibble {

// How far a token list is known to the index: its first `units` units. Remembered between look-ups,
// so that the next one costs as much as has changed.
struct PrefixCursor {
  UnitId unit = kNoUnit;  // the last of them
  uint32_t generation = 0;
  int units = 0;
  // Unit::births when the next unit was not there: it need not be looked for until they differ.
  uint32_t births = 0;
};

// How units are hashed.
struct PrefixHash {
  uint64_t seed = 0;             // where prompts come from strangers, one that they do not know
  uint64_t mask = ~uint64_t{0};  // for tests, which want collisions
};

// Sealed units by the tokens that lead to them: a tree whose nodes are units of `unit_tokens`
// tokens, found by a 64-bit hash that is chained from the root. A hash only finds: a unit is taken
// for another only when parent and tokens are equal, too, so that by induction all tokens before
// are. Of units with one hash the first keeps its place and the others are not listed, so a prompt
// made to collide with another could cost that one its caching, and many in one bucket of the table
// everybody's time: both take knowing the seed.
//
// A unit lists the pages that hold it, `slots` of them, some or all gone. It stays while it has a
// page, a child or a sequence at it.
class PrefixIndex {
 public:
  PrefixIndex(int unit_tokens, int slots, const PrefixHash& hash = {});

  int unit_tokens() const { return unit_tokens_; }
  int units() const { return static_cast<int>(by_hash_.size()); }

  // The child of parent (kNoUnit: the root) with the unit_tokens tokens from `first` on; kNoUnit
  // when there is none.
  UnitId Find(UnitId parent, const TokenList& tokens, int first) const;
  // Makes one that is missing; kNoUnit when another has its hash. It has no page yet, so the caller
  // gives it one or holds it at once.
  UnitId Add(UnitId parent, const TokenList& tokens, int first);

  // Moves the cursor to the last known of the first `most` units of tokens.
  void Advance(PrefixCursor& cursor, const TokenList& tokens, int most) const;

  UnitId parent(UnitId unit) const { return At(unit).parent; }
  PageId page(UnitId unit, int slot) const { return pages_[PageIndex(unit, slot)]; }
  void SetPage(UnitId unit, int slot, PageId page);  // the slot was empty
  void RemovePage(UnitId unit, int slot);
  void Hold(UnitId unit) { ++At(unit).holders; }  // a sequence continues from here
  void Drop(UnitId unit);

  // For the invariant checker.
  std::vector<UnitId> All() const;
  std::span<const TokenId> tokens(UnitId unit) const;
  struct Counts {
    int children = 0, pages = 0, holders = 0;
  };
  Counts counts(UnitId unit) const;
  bool HashIsRight(UnitId unit) const;

 private:
  struct Unit {
    uint64_t hash = 0;
    UnitId parent = kNoUnit;
    uint32_t generation = 0;  // counts the units that had this place
    uint32_t births = 1;      // counts the children that were ever added
    int children = 0;
    int pages = 0;
    int holders = 0;
  };
  Unit& At(UnitId unit) { return units_[static_cast<size_t>(unit.value())]; }
  const Unit& At(UnitId unit) const { return units_[static_cast<size_t>(unit.value())]; }
  size_t PageIndex(UnitId unit, int slot) const {
    return static_cast<size_t>(unit.value()) * static_cast<size_t>(slots_) +
           static_cast<size_t>(slot);
  }
  uint64_t Hash(UnitId parent, const TokenList& tokens, int first) const;
  bool IsChild(UnitId unit, UnitId parent, const TokenList& tokens, int first) const;
  void RemoveIfUnused(UnitId unit);

  int unit_tokens_;
  int slots_;
  uint64_t root_hash_;
  uint64_t hash_mask_;
  std::unordered_map<uint64_t, UnitId> by_hash_;
  std::vector<Unit> units_;
  std::vector<TokenId> tokens_;  // [units_][unit_tokens]
  std::vector<PageId> pages_;    // [units_][slots]
  std::vector<UnitId> free_;     // places in units_
  uint32_t births_ = 1;          // of the root
};

}  // namespace nibble
