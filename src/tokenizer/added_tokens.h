#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "tokenizer/piece_trie.h"

namespace nibble {

// A token that is found in the text before the model sees it.
struct AddedToken {
  std::string content;
  TokenId id;
  bool single_word = false;  // only when no word character touches it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;
  bool normalized = false;  // looked for in the normalised text
  bool special = false;     // a control token; else always recognised
};

// Cuts texts at added tokens: leftmost, then longest, as the Hugging Face library does.
class AddedTokenMatcher {
 public:
  struct Part {
    std::string_view text;  // of the token: its match with the white space it takes
    TokenId id = kNoToken;  // kNoToken: ordinary text
  };
  AddedTokenMatcher() = default;
  // Contents longer than 1024 bytes are refused: they would make matching quadratic.
  static Result<AddedTokenMatcher> Make(std::vector<AddedToken> tokens);

  // Appends the parts of text. With parse_special false, special tokens stay text.
  void Split(std::string_view text, bool parse_special, std::vector<Part>& out) const;
  bool empty() const { return tokens_.empty(); }

 private:
  std::vector<AddedToken> tokens_;
  PieceTrie trie_;
};

}  // namespace nibble
