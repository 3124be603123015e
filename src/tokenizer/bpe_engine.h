#pragma once

// The merging loop that both kinds of BPE share; an implementation detail of bpe.cc and
// rank_bpe.cc.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "tokenizer/bpe.h"

namespace nibble::bpe {

struct Symbol {
  uint32_t begin;  // bytes, in the piece
  uint32_t size;   // 0: merged into the symbol before
  int32_t id;      // -1: no token
  int32_t previous, next;
  bool frozen = false;
};

// Two neighbours that can merge. Stale once one of them has changed, which their joint size shows,
// because symbols only grow.
struct Candidate {
  uint64_t order;  // rank << 32 | left: lowest first
  uint32_t size;
  int32_t merged;
};

struct Workspace final : TokenModel::Workspace {
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;

  // Recent pieces and their ids, direct-mapped by hash.
  struct CacheSlot {
    uint64_t hash = 0;
    uint32_t text = 0, ids = 0;  // offsets
    uint16_t text_size = 0, id_count = 0;
  };
  std::vector<CacheSlot> cache;  // a power of two, or empty
  std::string cache_text;
  std::vector<TokenId> cache_ids;
};

// Merges until nothing is left to merge: O(n log n) for n symbols. find(left, right) gives a
// MergeTable::Found. symbols are linked by previous and next.
template <class Find>
void MergeWithHeap(std::vector<Symbol>& symbols, std::vector<Candidate>& heap, Find&& find) {
  const auto later = [](const Candidate& a, const Candidate& b) { return a.order > b.order; };
  const auto candidate = [&](int32_t left, int32_t right, Candidate& out) {
    if (left < 0 || right < 0) return false;
    const Symbol& l = symbols[static_cast<size_t>(left)];
    const Symbol& r = symbols[static_cast<size_t>(right)];
    const MergeTable::Found found = find(l, r);
    if (found.merged < 0) return false;
    out = {static_cast<uint64_t>(found.rank) << 32 | static_cast<uint32_t>(left), l.size + r.size,
           found.merged};
    return true;
  };
  heap.clear();
  Candidate c{};
  for (size_t i = 0; i + 1 < symbols.size(); ++i) {
    if (candidate(static_cast<int32_t>(i), static_cast<int32_t>(i + 1), c)) heap.push_back(c);
  }
  std::ranges::make_heap(heap, later);
  const auto push = [&](int32_t left, int32_t right) {
    if (!candidate(left, right, c)) return;
    heap.push_back(c);
    std::ranges::push_heap(heap, later);
  };
  while (!heap.empty()) {
    std::ranges::pop_heap(heap, later);
    const Candidate best = heap.back();
    heap.pop_back();
    const auto at = static_cast<int32_t>(best.order & 0xFFFFFFFF);
    Symbol& left = symbols[static_cast<size_t>(at)];
    if (left.size == 0 || left.next < 0) continue;
    Symbol& right = symbols[static_cast<size_t>(left.next)];
    if (left.size + right.size != best.size) continue;
    left.size = best.size;
    left.id = best.merged;
    right.size = 0;
    left.next = right.next;
    if (right.next >= 0) symbols[static_cast<size_t>(right.next)].previous = at;
    push(left.previous, at);
    push(at, left.next);
  }
}

// The same result for a few symbols, without links or heap: scans for the lowest rank each time.
// symbols shrinks to what is left.
inline constexpr size_t kFewSymbols = 24;
template <class Find>
void MergeFew(std::vector<Symbol>& symbols, Find&& find) {
  MergeTable::Found pairs[kFewSymbols];
  size_t n = symbols.size();
  for (size_t i = 0; i + 1 < n; ++i) pairs[i] = find(symbols[i], symbols[i + 1]);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (pairs[best].merged < 0) break;
    symbols[best].size += symbols[best + 1].size;
    symbols[best].id = pairs[best].merged;
    --n;
    for (size_t i = best + 1; i < n; ++i) {
      symbols[i] = symbols[i + 1];
      pairs[i - 1] = pairs[i];
    }
    if (best + 1 < n) pairs[best] = find(symbols[best], symbols[best + 1]);
    if (best > 0) pairs[best - 1] = find(symbols[best - 1], symbols[best]);
  }
  symbols.resize(n);
}

template <class Find>
void Merge(Workspace& work, Find&& find) {
  std::vector<Symbol>& symbols = work.symbols;
  if (symbols.size() <= kFewSymbols) {
    if (symbols.size() > 1) MergeFew(symbols, find);
    return;
  }
  for (size_t i = 0; i < symbols.size(); ++i) {
    symbols[i].previous = static_cast<int32_t>(i) - 1;
    symbols[i].next = i + 1 < symbols.size() ? static_cast<int32_t>(i + 1) : -1;
  }
  MergeWithHeap(symbols, work.heap, find);
  std::erase_if(symbols, [](const Symbol& s) { return s.size == 0; });
}

std::unique_ptr<Workspace> NewWorkspace(size_t total_bytes);

// Runs compute(piece, out) unless the piece's ids are in the cache.
template <class Compute>
Status Cached(Workspace& work, std::string_view piece, std::vector<TokenId>& out,
              Compute&& compute) {
  constexpr size_t kLongest = 48;
  if (work.cache.empty() || piece.size() > kLongest) return compute(out);
  const uint64_t hash = HashBytes(piece);
  Workspace::CacheSlot& slot = work.cache[hash & (work.cache.size() - 1)];
  if (slot.text_size == piece.size() && slot.hash == hash &&
      std::string_view(work.cache_text).substr(slot.text, slot.text_size) == piece) {
    const auto first = work.cache_ids.begin() + slot.ids;
    out.insert(out.end(), first, first + slot.id_count);
    return {};
  }
  const size_t before = out.size();
  NIBBLE_RETURN_IF_ERROR(compute(out));
  constexpr size_t kCacheBytes = size_t{8} << 20;
  if (work.cache_text.size() > kCacheBytes) return {};
  slot = {hash, static_cast<uint32_t>(work.cache_text.size()),
          static_cast<uint32_t>(work.cache_ids.size()), static_cast<uint16_t>(piece.size()),
          static_cast<uint16_t>(out.size() - before)};
  work.cache_text += piece;
  work.cache_ids.insert(work.cache_ids.end(), out.begin() + static_cast<int64_t>(before),
                        out.end());
  return {};
}

}  // namespace nibble::bpe
