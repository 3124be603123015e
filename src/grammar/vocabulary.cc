#include "grammar/vocabulary.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <span>
#include <utility>

#include "base/utf8.h"

namespace nibble::grammar {
namespace {

using TextKind = Vocabulary::Kind;

constexpr std::string_view kLeads[] = {"", " "};

std::optional<TextKind> KindOfByte(uint8_t b) {
  if (b >= 'a' && b <= 'z') return TextKind::kLower;
  if (b >= 'A' && b <= 'Z') return TextKind::kLetter;
  if ((b >= '0' && b <= '9') || b == '_') return TextKind::kWord;
  if (b >= 0x20 && b < 0x7F && b != '"' && b != '\\') return TextKind::kAscii;
  if (b >= 0x80) return TextKind::kString;
  return std::nullopt;
}

int CharsOf(std::string_view bytes) {
  return static_cast<int>(std::ranges::count_if(
      bytes, [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

std::optional<TextKind> KindOf(std::string_view bytes) {
  TextKind all = TextKind::kLower;
  for (const char c : bytes) {
    const auto kind = KindOfByte(static_cast<uint8_t>(c));
    if (!kind) return std::nullopt;
    all = std::max(all, *kind);
  }
  if (all == TextKind::kString && !IsValidUtf8(bytes)) return std::nullopt;
  if (CharsOf(bytes) > Vocabulary::kMostChars) return std::nullopt;
  return all;
}

class TreeBuilder {
 public:
  TreeBuilder(const std::vector<std::string>& tokens, std::vector<int32_t>& next_same)
      : tokens_(tokens), next_same_(next_same) {}

  // ids: sorted by bytes, then by id; of each the first `skip` bytes are left out.
  TokenTree Build(std::span<const int32_t> ids, size_t skip) {
    TokenTree tree;
    tree.nodes.emplace_back();
    std::deque<Range> ranges{{ids, skip}};  // of the nodes from `node` on
    for (size_t node = 0; !ranges.empty(); ++node, ranges.pop_front()) {
      auto [below, depth] = ranges.front();
      below = below.subspan(TakeToken(tree.nodes[node], below, depth));
      tree.nodes[node].first = static_cast<uint32_t>(tree.nodes.size());
      while (!below.empty()) {
        const char byte = Bytes(below[0])[depth];
        const auto end =
            std::ranges::find_if(below, [&](int32_t id) { return Bytes(id)[depth] != byte; });
        const auto count = static_cast<size_t>(end - below.begin());
        tree.nodes.push_back({.byte = static_cast<uint8_t>(byte)});
        tree.nodes[node].children = tree.nodes[node].children + 1;
        ranges.push_back({below.first(count), depth + 1});
        below = below.subspan(count);
      }
    }
    // Children come behind their parents.
    for (size_t node = tree.nodes.size(); node-- > 0;) CountChars(tree, node, skip);
    return tree;
  }

 private:
  struct Range {
    std::span<const int32_t> ids;
    size_t depth = 0;
  };

  std::string_view Bytes(int32_t id) const { return tokens_[static_cast<size_t>(id)]; }

  // Puts the tokens that end at this node there; returns how many there are.
  size_t TakeToken(TokenTree::Node& node, std::span<const int32_t> ids, size_t depth) {
    size_t count = 0;
    int32_t* slot = &node.token;
    while (count < ids.size() && Bytes(ids[count]).size() == depth) {
      *slot = ids[count++];
      slot = &next_same_[static_cast<size_t>(*slot)];
    }
    node.more = count > 1 ? 1 : 0;
    return count;
  }

  void CountChars(TokenTree& tree, size_t node, size_t skip) const {
    TokenTree::Node& n = tree.nodes[node];
    int most = n.token < 0 ? 0 : CharsOf(Bytes(n.token).substr(skip));
    for (uint32_t c = n.first; c < n.first + n.children; ++c) {
      most = std::max<int>(most, tree.nodes[c].most_chars);
    }
    n.most_chars = static_cast<uint8_t>(std::min(most, UINT8_MAX));
  }

  const std::vector<std::string>& tokens_;
  std::vector<int32_t>& next_same_;
};

}  // namespace

bool IsOfKind(Vocabulary::Kind kind, uint8_t byte) {
  const auto of = KindOfByte(byte);
  return of && *of <= kind;
}

Vocabulary::Vocabulary(std::vector<std::string> tokens, std::vector<TokenId> ends)
    : tokens_(std::move(tokens)), ends_(std::move(ends)), next_same_(tokens_.size(), -1) {
  std::ranges::sort(ends_);
  for (const TokenId id : ends_) tokens_[static_cast<size_t>(id.value())].clear();
  std::vector<int32_t> ids;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    // What a node can tell of its depth; no vocabulary has longer tokens.
    if (tokens_[i].size() > UINT16_MAX) tokens_[i].clear();
    if (!tokens_[i].empty()) ids.push_back(static_cast<int32_t>(i));
  }
  std::ranges::stable_sort(
      ids, {}, [&](int32_t id) -> const std::string& { return tokens_[static_cast<size_t>(id)]; });
  std::vector<int32_t> others;
  std::vector<int32_t> cut[std::size(kLeads)][kKinds];
  for (const int32_t id : ids) {
    const std::string_view text = bytes(TokenId{id});
    const size_t group = text.size() > 1 && text[0] == ' ' ? 1 : 0;
    const auto kind = KindOf(text.substr(kLeads[group].size()));
    (kind ? cut[group][static_cast<size_t>(*kind)] : others).push_back(id);
  }
  TreeBuilder builder(tokens_, next_same_);
  others_ = builder.Build(others, 0);
  for (size_t g = 0; g < std::size(kLeads); ++g) {
    Group& group = groups_.emplace_back();
    group.lead = kLeads[g];
    for (size_t k = 0; k < kKinds; ++k) {
      Slice& slice = group.slices[k];
      slice.tree = builder.Build(cut[g][k], group.lead.size());
      slice.up_to = k > 0 ? group.slices[k - 1].up_to
                          : std::vector(kBuckets, std::vector<uint64_t>(words(), 0));
      for (const int32_t id : cut[g][k]) {
        const int chars = CharsOf(bytes(TokenId{id}).substr(group.lead.size()));
        for (int b = kBuckets - 1; b >= 0 && MostCharsOf(b) >= chars; --b) {
          slice.up_to[static_cast<size_t>(b)][static_cast<size_t>(id) / 64] |= uint64_t{1}
                                                                               << (id % 64);
        }
      }
    }
  }
}

bool Vocabulary::IsEnd(TokenId id) const { return std::ranges::binary_search(ends_, id); }

size_t Vocabulary::memory() const {
  size_t bytes = tokens_.size() * (sizeof(std::string) + sizeof(int32_t));
  for (const std::string& token : tokens_) bytes += token.size() > 15 ? token.capacity() : 0;
  bytes += others_.nodes.size() * sizeof(TokenTree::Node);
  for (const Group& group : groups_) {
    for (const Slice& slice : group.slices) {
      bytes += slice.tree.nodes.size() * sizeof(TokenTree::Node) + kBuckets * words() * 8;
    }
  }
  return bytes;
}

}  // namespace nibble::grammar
