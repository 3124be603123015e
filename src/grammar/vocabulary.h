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

// Tokens as a tree over their bytes in depth-first order.
struct TokenTree {
  struct Node {
    uint32_t end = 0;    // one past the last node below this one
    int32_t token = -1;  // that ends here, the first of those with equal bytes; -1: none
    uint16_t depth = 0;  // bytes before this node's own
    uint8_t byte = 0;
  };
  std::vector<Node> nodes;
  size_t longest = 0;
};

// What a constraint knows of a vocabulary: the bytes of its tokens, sorted once for all grammars.
// Immutable.
//
// Tokens are cut into slices after their characters and length: where a grammar lets every text of
// a slice's kind follow (inside a string, say), all its tokens are let through at once, and only
// the other slices' trees are walked. An idea of llguidance (Microsoft).
class Vocabulary {
 public:
  // Kinds of characters; each holds those before it. kString: well-formed UTF-8 of what JSON
  // strings hold as it is. kRest: every other token, no kind.
  enum class Kind : uint8_t { kLower, kLetter, kWord, kAscii, kString, kRest };
  static constexpr int kKinds = 5;
  static constexpr int kMostChars = 32;  // longer tokens belong to kRest

  struct Slice {
    Kind kind = Kind::kRest;
    int chars = 0;  // most characters of its tokens
    std::vector<uint64_t> bits;
    TokenTree tree;
  };

  // tokens[id]: its bytes, with kMarkByte in front of a mark; empty: never allowed. ends: tokens
  // that end an answer, never part of it.
  Vocabulary(std::vector<std::string> tokens, std::vector<TokenId> ends);

  int size() const { return static_cast<int>(tokens_.size()); }
  size_t words() const { return (tokens_.size() + 63) / 64; }
  std::string_view bytes(TokenId id) const { return tokens_[static_cast<size_t>(id.value())]; }
  std::span<const TokenId> ends() const { return ends_; }
  bool IsEnd(TokenId id) const;
  std::span<const Slice> slices() const { return slices_; }
  // The next token with the same bytes; -1: none.
  int32_t next_same(int32_t token) const { return next_same_[static_cast<size_t>(token)]; }
  size_t memory() const;  // bytes

 private:
  std::vector<std::string> tokens_;
  std::vector<TokenId> ends_;  // ascending
  std::vector<int32_t> next_same_;
  std::vector<Slice> slices_;
};

// Whether a byte can be part of a text of this kind (of kString: with its neighbours).
bool IsOfKind(Vocabulary::Kind kind, uint8_t byte);

}  // namespace nibble::grammar
