#include "kv/prefix_index.h"

#include <algorithm>

#include "base/check.h"
#include "base/split_mix.h"

namespace nibble {

PrefixIndex::PrefixIndex(int unit_tokens, int slots, const PrefixHash& hash)
    : unit_tokens_(unit_tokens),
      slots_(slots),
      root_hash_(SplitMixAt(hash.seed, 0)),
      hash_mask_(hash.mask) {}

uint64_t PrefixIndex::Hash(UnitId parent, const TokenList& tokens, int first) const {
  // A multiplication and a shift per token mix well enough: tokens are compared anyway.
  uint64_t hash = parent == kNoUnit ? root_hash_ : At(parent).hash;
  for (int i = first; i < first + unit_tokens_; ++i) {
    hash = (hash ^ static_cast<uint32_t>(tokens[i].value())) * 0xD6E8FEB86659FD93ULL;
    hash ^= hash >> 32;
  }
  return hash & hash_mask_;
}

bool PrefixIndex::IsChild(UnitId unit, UnitId parent, const TokenList& tokens, int first) const {
  if (At(unit).parent != parent) return false;
  const std::span<const TokenId> own = this->tokens(unit);
  for (int i = 0; i < unit_tokens_; ++i) {
    if (own[static_cast<size_t>(i)] != tokens[first + i]) return false;
  }
  return true;
}

UnitId PrefixIndex::Find(UnitId parent, const TokenList& tokens, int first) const {
  const auto found = by_hash_.find(Hash(parent, tokens, first));
  if (found == by_hash_.end() || !IsChild(found->second, parent, tokens, first)) return kNoUnit;
  return found->second;
}

UnitId PrefixIndex::Add(UnitId parent, const TokenList& tokens, int first) {
  const uint64_t hash = Hash(parent, tokens, first);
  const auto [place, added] = by_hash_.try_emplace(hash, kNoUnit);
  if (!added) return kNoUnit;
  UnitId unit{static_cast<int>(units_.size())};
  if (free_.empty()) {
    units_.emplace_back();
    tokens_.resize(units_.size() * static_cast<size_t>(unit_tokens_));
    pages_.resize(units_.size() * static_cast<size_t>(slots_), kNoPage);
  } else {
    unit = free_.back();
    free_.pop_back();
  }
  place->second = unit;
  At(unit).hash = hash;
  At(unit).parent = parent;
  if (parent != kNoUnit) ++At(parent).children;
  ++(parent == kNoUnit ? births_ : At(parent).births);
  TokenId* out = &tokens_[static_cast<size_t>(unit.value()) * static_cast<size_t>(unit_tokens_)];
  for (int i = 0; i < unit_tokens_; ++i) out[i] = tokens[first + i];
  return unit;
}

void PrefixIndex::Advance(PrefixCursor& cursor, const TokenList& tokens, int most) const {
  if (cursor.unit != kNoUnit && At(cursor.unit).generation != cursor.generation) cursor = {};
  while (cursor.units < most) {
    const uint32_t births = cursor.unit == kNoUnit ? births_ : At(cursor.unit).births;
    if (cursor.births == births) return;
    const UnitId next = Find(cursor.unit, tokens, cursor.units * unit_tokens_);
    if (next == kNoUnit) {
      cursor.births = births;
      return;
    }
    cursor = {.unit = next, .generation = At(next).generation, .units = cursor.units + 1};
  }
}

void PrefixIndex::SetPage(UnitId unit, int slot, PageId page) {
  PageId& place = pages_[PageIndex(unit, slot)];
  NIBBLE_CHECK(place == kNoPage);
  place = page;
  ++At(unit).pages;
}

void PrefixIndex::RemovePage(UnitId unit, int slot) {
  PageId& place = pages_[PageIndex(unit, slot)];
  NIBBLE_CHECK(place != kNoPage);
  place = kNoPage;
  --At(unit).pages;
  RemoveIfUnused(unit);
}

void PrefixIndex::Drop(UnitId unit) {
  NIBBLE_CHECK(At(unit).holders > 0);
  --At(unit).holders;
  RemoveIfUnused(unit);
}

void PrefixIndex::RemoveIfUnused(UnitId unit) {
  while (unit != kNoUnit) {
    Unit& state = At(unit);
    if (state.children > 0 || state.pages > 0 || state.holders > 0) return;
    by_hash_.erase(state.hash);
    ++state.generation;
    free_.push_back(unit);
    unit = state.parent;
    if (unit != kNoUnit) --At(unit).children;
  }
}

std::vector<UnitId> PrefixIndex::All() const {
  std::vector<UnitId> all;
  for (const auto& [hash, unit] : by_hash_) all.push_back(unit);
  std::ranges::sort(all);
  return all;
}

std::span<const TokenId> PrefixIndex::tokens(UnitId unit) const {
  const auto n = static_cast<size_t>(unit_tokens_);
  return std::span(tokens_).subspan(static_cast<size_t>(unit.value()) * n, n);
}

PrefixIndex::Counts PrefixIndex::counts(UnitId unit) const {
  return {At(unit).children, At(unit).pages, At(unit).holders};
}

bool PrefixIndex::HashIsRight(UnitId unit) const {
  const auto found = by_hash_.find(At(unit).hash);
  return found != by_hash_.end() && found->second == unit &&
         Hash(At(unit).parent, TokenList{tokens(unit), {}}, 0) == At(unit).hash;
}

}  // namespace nibble
