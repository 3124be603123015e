#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace nibble {

struct TokenizerParts;  // tokenizer/parts.h: what a loader hands over

struct EncodeOptions {
  // Marks that the file asks for around a text: BOS, EOS, [CLS] … [SEP].
  bool add_special = true;
  // Texts of control tokens ("<|im_start|>") become those tokens; if false they are plain text.
  // Added tokens that are no control tokens are always recognised, as in the references.
  bool parse_special = true;
  // A text that certainly has more tokens is not cut to its end: what comes back then is longer
  // than this, and nothing else about it means anything.
  size_t most_tokens = SIZE_MAX;
};

struct DecodeOptions {
  bool skip_special = false;  // leave control tokens out of the text
};

// Text to token ids and back, one vocabulary. Immutable after loading and safe to share between
// threads. Loaders: tokenizer/load.h.
class Tokenizer {
 public:
  // For loaders. Errors: an added token that is too long or cannot be normalised.
  static Result<Tokenizer> Make(TokenizerParts parts);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Any bytes are accepted. Byte-level models pass invalid UTF-8 through byte by byte; others see
  // U+FFFD in its place. Errors: an expression of the file needs more matching steps than its bound
  // (hostile expression), a character has no token and the vocabulary has no unknown token.
  Result<std::vector<TokenId>> Encode(std::string_view text, EncodeOptions options = {}) const;

  // The text of a whole sequence, as the reference's decode: raw bytes, which a model may leave as
  // invalid UTF-8. Ids outside the vocabulary are left out.
  std::string Decode(std::span<const TokenId> ids, DecodeOptions options = {}) const;

  // Raw bytes a token adds in the middle of a text ("▁the" gives " the", "<0x0A>" a newline,
  // control tokens their own text); empty for ids outside the vocabulary. Lives as long as *this.
  std::string_view Bytes(TokenId id) const;
  // The vocabulary's own spelling ("Ġthe", "▁the", "<0x0A>"), for display.
  std::string_view Piece(TokenId id) const;
  // The id of a piece in the vocabulary's own spelling ("<|im_end|>").
  std::optional<TokenId> Find(std::string_view piece) const;

  int vocab_size() const;            // ids are 0 … vocab_size-1; some may be unused
  bool IsControl(TokenId id) const;  // never shown to a user: BOS, <|im_start|>, …
  bool IsEnd(TokenId id) const;      // generation stops: EOS, end of turn, the file's lists
  std::span<const TokenId> end_tokens() const;  // ascending

  // More end tokens: generation_config.json's eos_token_id. Ids outside the vocabulary are ignored.
  void AddEndTokens(std::span<const TokenId> ids);

  std::optional<TokenId> bos() const;
  std::optional<TokenId> eos() const;
  std::optional<TokenId> unknown() const;
  std::optional<TokenId> pad() const;
  bool adds_bos() const;  // with EncodeOptions::add_special
  bool adds_eos() const;

  // Jinja source from the file that the tokenizer came from; empty: none.
  std::string_view chat_template() const;
  // One line for `inspect`: "byte-level BPE, 49152 tokens, pre-tokenizer smollm".
  std::string_view description() const;

  // Whether a space at the start of a whole text was put there by the encoder, so that decoding
  // from the start of a text drops it (SentencePiece's dummy prefix).
  bool drops_leading_space() const;

 private:
  struct Impl;
  explicit Tokenizer(TokenizerParts parts);
  std::unique_ptr<Impl> impl_;
};

// Ids in, text out, never half a UTF-8 character: bytes wait until their character is whole. Bytes
// that can no longer become a character come out as U+FFFD (one per maximal subpart, as Unicode and
// Python do). The tokenizer must outlive it.
class StreamingDetokenizer {
 public:
  struct Options {
    bool skip_special = true;
    bool at_start = false;  // the ids begin a text: drop the encoder's leading space
  };
  explicit StreamingDetokenizer(const Tokenizer& tokenizer) : StreamingDetokenizer(tokenizer, {}) {}
  StreamingDetokenizer(const Tokenizer& tokenizer, Options options);

  std::string Add(TokenId id);  // text that is complete now; may be empty
  std::string Flush();          // the rest, at the end: half a character becomes U+FFFD
  size_t pending_bytes() const { return pending_.size(); }

 private:
  const Tokenizer* tokenizer_;
  Options options_;
  bool at_start_;
  std::string pending_;  // a proper prefix of one UTF-8 character
};

// Byte trie over the vocabulary's Bytes() in depth-first order, for constraints on the output:
// children of node i start at i + 1, the next sibling of node i is nodes[i].subtree_end. Control
// tokens and tokens without bytes are left out. Node 0 is the root (the empty text).
class TokenTrie {
 public:
  struct Node {
    uint32_t subtree_end;  // one past the last node below this one
    uint32_t first_token;  // into tokens
    uint32_t token_count;  // tokens that end here; more than one when texts are equal
    uint8_t byte;          // the edge that leads here
  };
  explicit TokenTrie(const Tokenizer& tokenizer);

  std::span<const Node> nodes() const { return nodes_; }
  std::span<const TokenId> TokensAt(const Node& node) const {
    return std::span(tokens_).subspan(node.first_token, node.token_count);
  }
  // All tokens whose bytes begin with the given bytes come from the returned node's subtree;
  // nothing when there is none.
  std::optional<uint32_t> Walk(std::string_view bytes) const;

 private:
  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;
};

}  // namespace nibble
