#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nibble {

// A byte trie from texts to numbers, for "what begins here". Built once; children of a node lie
// side by side in byte order.
class PieceTrie {
 public:
  // Of equal texts the last counts. Empty texts are left out.
  explicit PieceTrie(std::vector<std::pair<std::string_view, int32_t>> texts);
  PieceTrie() : PieceTrie(std::vector<std::pair<std::string_view, int32_t>>{}) {}

  // Calls visit(length, value) for every text that text begins with, shortest first.
  template <class Visit>
  void ForEachPrefix(std::string_view text, Visit&& visit) const {
    if (text.empty()) return;
    int32_t node = roots_[static_cast<uint8_t>(text[0])];
    for (size_t n = 1; node >= 0; ++n) {
      const Node& here = nodes_[static_cast<size_t>(node)];
      if (here.value >= 0) visit(n, here.value);
      if (n == text.size()) return;
      node = Child(here, static_cast<uint8_t>(text[n]));
    }
  }

  struct Match {
    size_t length = 0;  // 0: none
    int32_t value = -1;
  };
  Match Longest(std::string_view text) const {
    Match best;
    ForEachPrefix(text, [&](size_t n, int32_t value) { best = {n, value}; });
    return best;
  }
  bool MayBeginWith(char c) const { return roots_[static_cast<uint8_t>(c)] >= 0; }
  bool empty() const { return nodes_.empty(); }

 private:
  struct Node {
    uint32_t first_child = 0;
    uint16_t child_count = 0;
    uint8_t byte = 0;
    int32_t value = -1;
  };
  int32_t Child(const Node& node, uint8_t byte) const {
    uint32_t low = node.first_child;
    uint32_t high = low + node.child_count;
    while (low < high) {
      const uint32_t middle = (low + high) / 2;
      if (nodes_[middle].byte < byte) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    const bool found = low < node.first_child + node.child_count && nodes_[low].byte == byte;
    return found ? static_cast<int32_t>(low) : -1;
  }
  std::array<int32_t, 256> roots_;
  std::vector<Node> nodes_;
};

}  // namespace nibble
