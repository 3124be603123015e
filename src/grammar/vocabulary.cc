#include "grammar/vocabulary.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace nibble::grammar {
namespace {

using TextKind = Vocabulary::Kind;

constexpr int kLengths[] = {2, 4, 8, 16, Vocabulary::kMostChars};

TextKind KindOfByte(uint8_t b) {
  if (b >= 'a' && b <= 'z') return TextKind::kLower;
  if (b >= 'A' && b <= 'Z') return TextKind::kLetter;
  if ((b >= '0' && b <= '9') || b == '_') return TextKind::kWord;
  if (b >= 0x20 && b < 0x7F && b != '"' && b != '\\') return TextKind::kAscii;
  return b >= 0x80 ? TextKind::kString : TextKind::kRest;
}

struct KindAndLength {
  TextKind kind = TextKind::kLower;
  int chars = 0;
};

KindAndLength Classify(std::string_view bytes) {
  KindAndLength out;
  for (const char c : bytes) {
    out.kind = std::max(out.kind, KindOfByte(static_cast<uint8_t>(c)));
    if ((static_cast<uint8_t>(c) & 0xC0) != 0x80) ++out.chars;
  }
  if (out.kind == TextKind::kString && !IsValidUtf8(bytes)) out.kind = TextKind::kRest;
  if (out.chars > Vocabulary::kMostChars) out.kind = TextKind::kRest;
  return out;
}

class TreeBuilder {
 public:
  TreeBuilder(const std::vector<std::string>& tokens, std::vector<int32_t>& next_same)
      : tokens_(tokens), next_same_(next_same) {}

  // ids: sorted by bytes, then by id.
  TokenTree Build(const std::vector<int32_t>& ids) {
    TokenTree tree;
    std::vector<uint32_t> path;  // nodes of the last token
    std::string_view last;
    for (const int32_t id : ids) {
      const std::string_view bytes = tokens_[static_cast<size_t>(id)];
      const auto differ = std::ranges::mismatch(last, bytes);
      const auto common = static_cast<size_t>(differ.in2 - bytes.begin());
      while (path.size() > common) Close(tree, path);
      for (size_t i = common; i < bytes.size(); ++i) {
        path.push_back(static_cast<uint32_t>(tree.nodes.size()));
        tree.nodes.push_back(
            {.depth = static_cast<uint16_t>(i), .byte = static_cast<uint8_t>(bytes[i])});
      }
      tree.longest = std::max(tree.longest, bytes.size());
      int32_t* slot = &tree.nodes[path.back()].token;
      while (*slot >= 0) slot = &next_same_[static_cast<size_t>(*slot)];
      *slot = id;
      last = bytes;
    }
    while (!path.empty()) Close(tree, path);
    return tree;
  }

 private:
  static void Close(TokenTree& tree, std::vector<uint32_t>& path) {
    tree.nodes[path.back()].end = static_cast<uint32_t>(tree.nodes.size());
    path.pop_back();
  }

  const std::vector<std::string>& tokens_;
  std::vector<int32_t>& next_same_;
};

}  // namespace

bool IsOfKind(Vocabulary::Kind kind, uint8_t byte) { return KindOfByte(byte) <= kind; }

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
  constexpr size_t kBuckets = std::size(kLengths);
  std::vector<std::vector<int32_t>> cut(kKinds * kBuckets + 1);
  for (const int32_t id : ids) {
    const KindAndLength of = Classify(tokens_[static_cast<size_t>(id)]);
    size_t slice = cut.size() - 1;
    if (of.kind != TextKind::kRest) {
      const auto bucket = std::ranges::lower_bound(kLengths, of.chars) - std::begin(kLengths);
      slice = static_cast<size_t>(of.kind) * kBuckets + static_cast<size_t>(bucket);
    }
    cut[slice].push_back(id);
  }
  for (size_t i = 0; i < cut.size(); ++i) {
    if (cut[i].empty()) continue;
    Slice slice;
    if (i + 1 < cut.size()) {
      slice.kind = static_cast<TextKind>(i / kBuckets);
      slice.chars = kLengths[i % kBuckets];
    }
    slice.bits.assign(words(), 0);
    for (const int32_t id : cut[i]) {
      slice.bits[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64);
    }
    slice.tree = TreeBuilder(tokens_, next_same_).Build(cut[i]);
    slices_.push_back(std::move(slice));
  }
}

bool Vocabulary::IsEnd(TokenId id) const { return std::ranges::binary_search(ends_, id); }

size_t Vocabulary::memory() const {
  size_t bytes = tokens_.size() * (sizeof(std::string) + sizeof(int32_t));
  for (const std::string& token : tokens_) bytes += token.size() > 15 ? token.capacity() : 0;
  for (const Slice& slice : slices_) {
    bytes += slice.bits.size() * 8 + slice.tree.nodes.size() * sizeof(TokenTree::Node);
  }
  return bytes;
}

}  // namespace nibble::grammar
