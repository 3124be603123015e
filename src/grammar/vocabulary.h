#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace nibble::grammar {

// The byte that stands in front of the text of a token that is a mark of its own (<|im_end|>): no
// UTF-8 has it, so that a mark is never taken for text, nor text for a mark.
inline constexpr char kMarkByte = '\xFF';

// Tokens as a tree over their bytes, breadth first: the children of a node lie side by side,
// because most walks look at all of them and go on with few.
struct TokenTree {
  struct Node {
    uint32_t first = 0;  // of its children
    int32_t token = -1;  // that ends here, the first of those with equal bytes; -1: none
    uint16_t children : 15 = 0;
    uint16_t more : 1 = 0;  // whether other tokens have the same bytes
    uint8_t byte = 0;
    uint8_t most_chars = 0;  // of the tokens here and below
  };
  std::vector<Node> nodes;  // the first is the root, the empty text
};

// What a constraint knows of a vocabulary: the bytes of its tokens, sorted once for all grammars.
// Immutable.
//
// Tokens are cut after the kind of their characters: where a grammar lets every text of a kind
// follow up to some length (inside a string, say), all its tokens of that length are let through at
// once, and only the others' trees are walked. An idea of llguidance (Microsoft). Tokens that begin
// with a space are cut by what is behind it, since most words do.
class Vocabulary {
 public:
  // Kinds of characters; each holds those before it. kString: well-formed UTF-8 of what JSON
  // strings hold as it is.
  enum class Kind : uint8_t { kLower, kLetter, kWord, kAscii, kString };
  static constexpr int kKinds = 5;
  static constexpr int kMostChars = 32;  // longer tokens are of no kind

  // Tokens of a kind and of none before it.
  struct Slice {
    TokenTree tree;
    // [bucket]: tokens of this kind or one before it of at most MostCharsOf(bucket) characters.
    std::vector<std::vector<uint64_t>> up_to;
  };
  // All tokens that begin with the same bytes, without which they are cut.
  struct Group {
    std::string_view lead;
    Slice slices[kKinds];
  };
  // Lengths by which tokens are let through: each up to 20 characters, then fewer.
  static constexpr int kBuckets = 22;
  static constexpr int MostCharsOf(int bucket) {
    constexpr int kLonger[] = {24, kMostChars};
    return bucket < 20 ? bucket + 1 : kLonger[bucket - 20];
  }
  // The last bucket of at most so many characters; -1: none.
  static constexpr int BucketUpTo(int chars) {
    int bucket = kBuckets - 1;
    while (bucket >= 0 && MostCharsOf(bucket) > chars) --bucket;
    return bucket;
  }

  // tokens[id]: its bytes, with kMarkByte in front of a mark; empty: never allowed. ends: tokens
  // that end an answer, never part of it.
  Vocabulary(std::vector<std::string> tokens, std::vector<TokenId> ends);

  int size() const { return static_cast<int>(tokens_.size()); }
  size_t words() const { return (tokens_.size() + 63) / 64; }
  std::string_view bytes(TokenId id) const { return tokens_[static_cast<size_t>(id.value())]; }
  std::span<const TokenId> ends() const { return ends_; }
  bool IsEnd(TokenId id) const;
  std::span<const Group> groups() const { return groups_; }
  // Tokens of no kind.
  const TokenTree& others() const { return others_; }
  // The next token with the same bytes; -1: none.
  int32_t next_same(int32_t token) const { return next_same_[static_cast<size_t>(token)]; }
  size_t memory() const;  // bytes

 private:
  std::vector<std::string> tokens_;
  std::vector<TokenId> ends_;  // ascending
  std::vector<int32_t> next_same_;
  std::vector<Group> groups_;
  TokenTree others_;
};

// Whether a byte can be part of a text of this kind (of kString: with its neighbours).
bool IsOfKind(Vocabulary::Kind kind, uint8_t byte);

}  // namespace nibble::grammar
