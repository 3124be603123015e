#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/decoder.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pretokenizer.h"
#include "tokenizer/token_index.h"
#include "tokenizer/token_model.h"

namespace nibble {

// GGUF's and SentencePiece's kinds of token.
enum class TokenKind : uint8_t { kNormal, kUnknown, kControl, kUserDefined, kUnused, kByte };

// The spellings of all ids.
class Vocabulary {
 public:
  // Bounds on what a file may hold; the largest published vocabularies have 262,144 tokens.
  static constexpr size_t kMaxTokens = size_t{1} << 22;
  static constexpr size_t kMaxTokenBytes = 16 * 1024;

  // Error: id or piece beyond the bounds. Ids in between are unused.
  Status Set(int64_t id, std::string_view piece, TokenKind kind);
  void SetKind(TokenId id, TokenKind kind) { entries_[Index(id)].kind = kind; }

  int size() const { return static_cast<int>(entries_.size()); }
  bool Has(int64_t id) const { return id >= 0 && id < size(); }
  std::string_view Piece(TokenId id) const {
    const Entry& e = entries_[Index(id)];
    return std::string_view(arena_).substr(e.offset, e.size);
  }
  TokenKind Kind(TokenId id) const { return entries_[Index(id)].kind; }
  bool IsSet(TokenId id) const { return entries_[Index(id)].set; }

 private:
  struct Entry {
    uint64_t offset = 0;
    uint32_t size = 0;
    TokenKind kind = TokenKind::kUnused;
    bool set = false;
  };
  static size_t Index(TokenId id) { return static_cast<size_t>(id.value()); }
  std::string arena_;
  std::vector<Entry> entries_;
};

// Everything a Tokenizer is made of. A loader fills it in.
struct TokenizerParts {
  Vocabulary vocabulary;
  std::vector<AddedToken> added;
  Normalizers normalizers;
  PreTokenizers pretokenizers;
  std::unique_ptr<TokenModel> model;  // null: a file without a vocabulary
  // Ids around a text, for EncodeOptions::add_special.
  std::vector<TokenId> prefix, suffix;

  DecoderSteps decoder;
  // No decoder: tokens are joined by a space (Hugging Face), else by nothing.
  bool join_with_space = false;
  bool drops_leading_space = false;  // only used when decoder is empty
  // Raw bytes of each id, filled in by a loader whose spellings are no UTF-8 (tiktoken) or whose
  // decoder is empty; ids beyond its size get their bytes from the decoder.
  std::vector<std::string> bytes;

  std::optional<TokenId> bos, eos, unknown, pad;
  std::vector<TokenId> end_tokens;
  std::string chat_template;
  std::string description;
};

// An id from a file as a token of the vocabulary; an error that names what it is for.
Result<TokenId> CheckedId(const Vocabulary& vocabulary, int64_t id, std::string_view what);

// Tokens that end an answer by their text, as llama.cpp knows them ("<|im_end|>", "</s>", …).
bool IsEndText(std::string_view text);
// Appends the control tokens among them, with the exceptions for files that use "<|end|>" or
// "</s>" inside an answer.
void AddEndTokensByText(TokenizerParts& parts);

}  // namespace nibble
