#include "tokenizer/token_index.h"

#include <algorithm>
#include <bit>

namespace nibble {

void TokenIndex::Grow(size_t slots) {
  slots_.assign(std::bit_ceil(std::max<size_t>(slots, 16)), Slot{});
  const size_t mask = slots_.size() - 1;
  for (size_t e = 0; e < entries_.size(); ++e) {
    const uint64_t h = HashBytes(TextOf(entries_[e]));
    size_t i = h & mask;
    while (slots_[i].entry != 0) i = (i + 1) & mask;
    slots_[i] = {static_cast<uint32_t>(h >> 32), static_cast<uint32_t>(e + 1)};
  }
}

void TokenIndex::Reserve(size_t tokens, size_t bytes) {
  arena_.reserve(bytes);
  entries_.reserve(tokens);
  if (slots_.size() < tokens * 2) Grow(tokens * 2);
}

bool TokenIndex::Insert(std::string_view text, int32_t id) {
  if (slots_.size() < (entries_.size() + 1) * 2) Grow((entries_.size() + 1) * 4);
  const uint64_t h = HashBytes(text);
  const auto tag = static_cast<uint32_t>(h >> 32);
  const size_t mask = slots_.size() - 1;
  size_t i = h & mask;
  for (; slots_[i].entry != 0; i = (i + 1) & mask) {
    if (slots_[i].tag == tag && TextOf(entries_[slots_[i].entry - 1]) == text) return false;
  }
  entries_.push_back({arena_.size(), static_cast<uint32_t>(text.size()), id});
  arena_ += text;
  slots_[i] = {tag, static_cast<uint32_t>(entries_.size())};
  longest_ = std::max(longest_, text.size());
  return true;
}

int32_t TokenIndex::Find(std::string_view text) const {
  if (slots_.empty() || text.size() > longest_) return -1;
  const uint64_t h = HashBytes(text);
  const auto tag = static_cast<uint32_t>(h >> 32);
  const size_t mask = slots_.size() - 1;
  for (size_t i = h & mask; slots_[i].entry != 0; i = (i + 1) & mask) {
    const Entry& e = entries_[slots_[i].entry - 1];
    if (slots_[i].tag == tag && TextOf(e) == text) return e.id;
  }
  return -1;
}

}  // namespace nibble
