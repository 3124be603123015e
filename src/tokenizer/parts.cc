#include "tokenizer/parts.h"

#include <algorithm>
#include <array>

namespace nibble {

Status Vocabulary::Set(int64_t id, std::string_view piece, TokenKind kind) {
  if (id < 0 || id >= static_cast<int64_t>(kMaxTokens)) {
    return BadInput("token id {} is outside 0 … {}", id, kMaxTokens - 1);
  }
  if (piece.size() > kMaxTokenBytes) {
    return BadInput("token {} has {} bytes: the limit is {}", id, piece.size(), kMaxTokenBytes);
  }
  const auto i = static_cast<size_t>(id);
  if (i >= entries_.size()) entries_.resize(i + 1);
  entries_[i] = {arena_.size(), static_cast<uint32_t>(piece.size()), kind, true};
  arena_ += piece;
  return {};
}

Result<TokenId> CheckedId(const Vocabulary& vocabulary, int64_t id, std::string_view what) {
  if (!vocabulary.Has(id)) {
    return BadInput("{}: token id {} is outside the vocabulary of {} tokens", what, id,
                    vocabulary.size());
  }
  return TokenId{static_cast<int32_t>(id)};
}

bool IsEndText(std::string_view text) {
  static constexpr std::array<std::string_view, 21> kTexts = {"<|eot_id|>",
                                                              "<|im_end|>",
                                                              "<|end|>",
                                                              "<|return|>",
                                                              "<|call|>",
                                                              "<|flush|>",
                                                              "<|calls|>",
                                                              "<end_of_turn>",
                                                              "<|endoftext|>",
                                                              "</s>",
                                                              "<|eom_id|>",
                                                              "<EOT>",
                                                              "_<EOT>",
                                                              "[EOT]",
                                                              "[EOS]",
                                                              "<|end_of_text|>",
                                                              "<end_of_utterance>",
                                                              "<turn|>",
                                                              "<|tool_response>",
                                                              "<｜end▁of▁sentence｜>",
                                                              "[e~["};
  return std::ranges::find(kTexts, text) != kTexts.end();
}

void AddEndTokensByText(TokenizerParts& parts) {
  const Vocabulary& vocabulary = parts.vocabulary;
  std::optional<TokenId> end, end_of_sequence;
  bool harmony = false, calls = false, tools = false;
  for (int i = 0; i < vocabulary.size(); ++i) {
    const TokenId id{i};
    const std::string_view piece = vocabulary.Piece(id);
    if (piece.size() < 4 || !IsEndText(piece)) continue;
    const TokenKind kind = vocabulary.Kind(id);
    if (kind != TokenKind::kControl && kind != TokenKind::kUserDefined) continue;
    parts.end_tokens.push_back(id);
    if (piece == "<|end|>") end = id;
    if (piece == "</s>") end_of_sequence = id;
    harmony = harmony || piece == "<|return|>" || piece == "<|flush|>";
    calls = calls || piece == "<|call|>" || piece == "<|calls|>";
    tools = tools || piece == "<|tool_response>";
  }
  if (end && harmony && calls) std::erase(parts.end_tokens, *end);
  if (end_of_sequence && tools) std::erase(parts.end_tokens, *end_of_sequence);
}

}  // namespace nibble
