#include "tokenizer/word_models.h"

#include <algorithm>

#include "base/utf8.h"

namespace nibble {
namespace {

struct NoWorkspace final : TokenModel::Workspace {};

std::unexpected<Error> NoToken(std::string_view piece) {
  return BadInput("the vocabulary has no token for '{}' and no unknown token",
                  ReplaceInvalidUtf8(piece.substr(0, 64)));
}

size_t CountCharacters(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

class WordPiece final : public TokenModel {
 public:
  WordPiece(WordPieceOptions options, TokenIndex index)
      : options_(std::move(options)), index_(std::move(index)) {}

  std::unique_ptr<Workspace> NewWorkspace(size_t) const override {
    return std::make_unique<NoWorkspace>();
  }
  bool accepts_any_bytes() const override { return false; }

  Status Tokenize(std::string_view piece, Workspace&, std::vector<TokenId>& out) const override {
    const size_t before = out.size();
    const bool too_long =
        options_.max_characters && CountCharacters(piece) > *options_.max_characters;
    if (!too_long && Cover(piece, out)) return {};
    out.resize(before);
    if (!options_.unknown) return NoToken(piece);
    out.push_back(*options_.unknown);
    return {};
  }

 private:
  bool Cover(std::string_view word, std::vector<TokenId>& out) const {
    std::string text;
    if (options_.prefix_is_text) {
      text = options_.first_prefix;
      text += word;
      word = text;
    }
    std::string candidate;
    for (size_t start = 0; start < word.size();) {
      const std::string& prefix =
          options_.prefix_is_text
              ? kNone
              : (start == 0 ? options_.first_prefix : options_.continuing_prefix);
      const size_t longest =
          index_.longest() > prefix.size() ? index_.longest() - prefix.size() : 0;
      size_t length = std::min(word.size() - start, longest);
      int32_t id = -1;
      candidate = prefix;
      candidate += word.substr(start, length);
      for (; length > 0; --length) {
        const size_t end = start + length;
        const bool boundary =
            end == word.size() || (static_cast<uint8_t>(word[end]) & 0xC0) != 0x80;
        candidate.resize(prefix.size() + length);
        if (boundary) id = index_.Find(candidate);
        if (id >= 0) break;
      }
      if (id < 0) return false;
      out.emplace_back(id);
      start += length;
    }
    return true;
  }

  inline static const std::string kNone;
  WordPieceOptions options_;
  TokenIndex index_;
};

class WordLevel final : public TokenModel {
 public:
  WordLevel(std::optional<TokenId> unknown, TokenIndex index)
      : unknown_(unknown), index_(std::move(index)) {}

  std::unique_ptr<Workspace> NewWorkspace(size_t) const override {
    return std::make_unique<NoWorkspace>();
  }
  bool accepts_any_bytes() const override { return false; }

  Status Tokenize(std::string_view piece, Workspace&, std::vector<TokenId>& out) const override {
    const int32_t id = index_.Find(piece);
    if (id < 0 && !unknown_) return NoToken(piece);
    out.push_back(id < 0 ? *unknown_ : TokenId{id});
    return {};
  }

 private:
  std::optional<TokenId> unknown_;
  TokenIndex index_;
};

}  // namespace

std::unique_ptr<TokenModel> MakeWordPiece(WordPieceOptions options, TokenIndex index) {
  return std::make_unique<WordPiece>(std::move(options), std::move(index));
}

std::unique_ptr<TokenModel> MakeWordLevel(std::optional<TokenId> unknown, TokenIndex index) {
  return std::make_unique<WordLevel>(unknown, std::move(index));
}

}  // namespace nibble
