#include "tokenizer/piece_trie.h"

#include <algorithm>

namespace nibble {

PieceTrie::PieceTrie(std::vector<std::pair<std::string_view, int32_t>> texts) {
  roots_.fill(-1);
  std::erase_if(texts, [](const auto& t) { return t.first.empty(); });
  std::ranges::stable_sort(texts, {}, [](const auto& t) { return t.first; });

  // Breadth first: each pending node owns the sorted texts [begin, end), which agree in the first
  // depth bytes.
  struct Pending {
    uint32_t node;
    size_t begin, end, depth;
  };
  std::vector<Pending> queue;
  const auto add_children = [&](size_t begin, size_t end, size_t depth) {
    uint32_t count = 0;
    while (begin < end) {
      const char byte = texts[begin].first[depth];
      size_t stop = begin + 1;
      while (stop < end && texts[stop].first[depth] == byte) ++stop;
      queue.push_back({static_cast<uint32_t>(nodes_.size()), begin, stop, depth + 1});
      nodes_.push_back({0, 0, static_cast<uint8_t>(byte), -1});
      ++count;
      begin = stop;
    }
    return count;
  };
  add_children(0, texts.size(), 0);
  for (size_t i = 0; i < nodes_.size(); ++i) roots_[nodes_[i].byte] = static_cast<int32_t>(i);
  for (size_t q = 0; q < queue.size(); ++q) {
    Pending p = queue[q];
    while (p.begin < p.end && texts[p.begin].first.size() == p.depth) {
      nodes_[p.node].value = texts[p.begin].second;
      ++p.begin;
    }
    const auto first = static_cast<uint32_t>(nodes_.size());
    const uint32_t count = add_children(p.begin, p.end, p.depth);
    nodes_[p.node].first_child = first;
    nodes_[p.node].child_count = static_cast<uint16_t>(count);
  }
}

}  // namespace nibble
