#include <algorithm>

#include "tokenizer/tokenizer.h"

namespace nibble {

TokenTrie::TokenTrie(const Tokenizer& tokenizer) {
  struct Entry {
    std::string_view bytes;
    TokenId id;
  };
  std::vector<Entry> entries;
  for (int i = 0; i < tokenizer.vocab_size(); ++i) {
    const TokenId id{i};
    if (!tokenizer.IsControl(id) && !tokenizer.Bytes(id).empty()) {
      entries.push_back({tokenizer.Bytes(id), id});
    }
  }
  std::ranges::sort(entries, [](const Entry& a, const Entry& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.id < b.id;
  });

  // In sorted order each text shares a prefix with the one before: close the nodes that are left,
  // open the new ones.
  std::vector<uint32_t> open = {0};  // the path from the root to the last text's node
  nodes_.push_back({0, 0, 0, 0});
  std::string_view previous;
  for (const Entry& entry : entries) {
    const auto shared =
        static_cast<size_t>(std::ranges::mismatch(previous, entry.bytes).in2 - entry.bytes.begin());
    while (open.size() > shared + 1) {
      nodes_[open.back()].subtree_end = static_cast<uint32_t>(nodes_.size());
      open.pop_back();
    }
    for (size_t depth = open.size() - 1; depth < entry.bytes.size(); ++depth) {
      open.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back(
          {0, static_cast<uint32_t>(tokens_.size()), 0, static_cast<uint8_t>(entry.bytes[depth])});
    }
    Node& node = nodes_[open.back()];
    if (node.token_count == 0) node.first_token = static_cast<uint32_t>(tokens_.size());
    ++node.token_count;
    tokens_.push_back(entry.id);
    previous = entry.bytes;
  }
  for (const uint32_t node : open) nodes_[node].subtree_end = static_cast<uint32_t>(nodes_.size());
}

std::optional<uint32_t> TokenTrie::Walk(std::string_view bytes) const {
  uint32_t node = 0;
  for (const char c : bytes) {
    uint32_t child = node + 1;
    const uint32_t end = nodes_[node].subtree_end;
    while (child < end && nodes_[child].byte != static_cast<uint8_t>(c)) {
      child = nodes_[child].subtree_end;
    }
    if (child >= end) return std::nullopt;
    node = child;
  }
  return node;
}

}  // namespace nibble
