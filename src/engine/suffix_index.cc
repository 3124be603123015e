#include "engine/suffix_index.h"

#include <algorithm>

#include "base/split_mix.h"

namespace nibble {

// Of the tokens before `end`.
size_t SuffixIndex::Slot(const Table& table, const TokenList& tokens, int end) {
  uint64_t hash = 0;
  for (int i = end - table.order; i < end; ++i) {
    hash = SplitMix(hash + kSplitMixStep + static_cast<uint64_t>(tokens[i].value()));
  }
  return hash & (table.heads.size() - 1);
}

void SuffixIndex::Insert(Table& table, const TokenList& tokens, int end) {
  if (end < table.order) {
    table.previous.push_back(-1);
    return;
  }
  int32_t& head = table.heads[Slot(table, tokens, end)];
  table.previous.push_back(head);
  head = end;
}

// Twice as many heads as places.
void SuffixIndex::Grow(Table& table, const TokenList& tokens) {
  const auto places = static_cast<int>(table.previous.size());
  table.heads.assign(std::max<size_t>(64, table.heads.size() * 2), -1);
  table.previous.clear();
  for (int end = 0; end < places; ++end) Insert(table, tokens, end);
}

SuffixIndex::Match SuffixIndex::Longest(const Table& table, const TokenList& tokens) {
  const int size = tokens.size();
  Match best;
  if (size < table.order) return best;
  int place = table.heads[Slot(table, tokens, size)];
  for (int tried = 0; place >= 0 && tried < kMostTried; ++tried) {
    int length = 0;
    while (length < kMostMatch && length < place &&
           tokens[place - 1 - length] == tokens[size - 1 - length]) {
      ++length;
    }
    if (length >= table.order && length > best.length) best = {.end = place, .length = length};
    if (length == kMostMatch) break;
    place = table.previous[static_cast<size_t>(place)];
  }
  return best;
}

SuffixIndex::Match SuffixIndex::Find(const TokenList& tokens) {
  for (Table& table : tables_) {
    for (int end = indexed_; end < tokens.size(); ++end) {
      while (table.heads.size() <= table.previous.size() * 2) Grow(table, tokens);
      Insert(table, tokens, end);
    }
  }
  indexed_ = tokens.size();
  for (const Table& table : tables_) {
    if (const Match match = Longest(table, tokens); match.length > 0) return match;
  }
  return {};
}

}  // namespace nibble
