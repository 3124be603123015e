#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "tokenizer/token_index.h"
#include "tokenizer/token_model.h"

namespace nibble {

// The longest piece first, from the left; a word that cannot be covered is unknown (BERT).
struct WordPieceOptions {
  std::string first_prefix;              // of the piece that begins a word (GGUF: "▁")
  std::string continuing_prefix;         // of the others ("##")
  std::optional<size_t> max_characters;  // longer words are unknown
  std::optional<TokenId> unknown;
  // Hugging Face's search goes by characters; llama.cpp's may begin a word with "▁" alone.
  bool prefix_is_text = false;
};
std::unique_ptr<TokenModel> MakeWordPiece(WordPieceOptions options, TokenIndex index);

// Each piece is one token. Without an unknown token other pieces are errors.
std::unique_ptr<TokenModel> MakeWordLevel(std::optional<TokenId> unknown, TokenIndex index);

}  // namespace nibble
