#include <algorithm>

#include "base/utf8.h"
#include "container/json.h"
#include "tokenizer/hf_json.h"
#include "tokenizer/load_parts.h"
#include "tokenizer/pre_types.h"

namespace nibble {
namespace {

// The classes whose slow tokenizers use another expression than GPT-2's.
std::string_view PreTypeOfClass(std::string_view tokenizer_class) {
  if (tokenizer_class.starts_with("Qwen2")) return "qwen2";
  if (tokenizer_class.starts_with("Qwen3_5")) return "qwen35";
  return "gpt-2";
}

Result<std::vector<hf::MergeText>> ParseMerges(std::string_view text) {
  std::vector<hf::MergeText> merges;
  bool first = true;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const bool header = first && line.starts_with("#version");
    first = false;
    if (header || line.empty()) continue;
    NIBBLE_TRY(const hf::MergeText merge, hf::SplitMerge(line, merges.size()));
    merges.push_back(merge);
  }
  return merges;
}

}  // namespace

Result<TokenizerParts> VocabMergesParts(std::string vocab_json, std::string_view merges_text,
                                        const hf::TokenizerConfig* config) {
  TokenizerParts parts;
  NIBBLE_TRY(const JsonDocument document, JsonDocument::Parse(std::move(vocab_json)));
  NIBBLE_TRY(const JsonObject object, document.root().AsObject());
  for (const auto [piece, value] : object) {
    NIBBLE_TRY(const int64_t id, value.AsInt());
    if (parts.vocabulary.Has(id) && parts.vocabulary.IsSet(TokenId{static_cast<int32_t>(id)})) {
      return BadInput("'{}' and '{}' have the same id {}",
                      parts.vocabulary.Piece(TokenId{static_cast<int32_t>(id)}),
                      piece.substr(0, 80), id);
    }
    NIBBLE_RETURN_IF_ERROR(parts.vocabulary.Set(id, piece, TokenKind::kNormal));
  }
  if (parts.vocabulary.size() == 0) return BadInput("the vocabulary is empty");
  const std::string_view pre = PreTypeOfClass(config ? config->tokenizer_class : "");
  for (const std::string_view expression : FindPreType(pre)->expressions) {
    if (expression.empty()) continue;
    NIBBLE_TRY(auto step, MakeIsolatedSplit(expression));
    parts.pretokenizers.push_back(std::move(step));
  }
  if (pre != "gpt-2") parts.normalizers.push_back(MakeUnicodeForm(NormalForm::kNfc));
  NIBBLE_TRY(const auto merges, ParseMerges(merges_text));
  NIBBLE_TRY(MergeTable table, hf::BuildMerges(merges, hf::PieceIndex(parts.vocabulary), ""));
  BpeOptions options;
  options.bytes = true;
  parts.model = MakeMergeBpe(std::move(options), hf::ByteIndex(parts.vocabulary), std::move(table));
  parts.decoder.push_back(MakeByteLevelDecoder());
  parts.description = fmt::format("byte-level BPE, pre-tokenizer {}", pre);
  // GPT-2's files say nowhere that this one is no ordinary token.
  for (const std::string_view text : {"<|endoftext|>"}) {
    for (int i = 0; i < parts.vocabulary.size(); ++i) {
      if (parts.vocabulary.Piece(TokenId{i}) != text) continue;
      NIBBLE_RETURN_IF_ERROR(
          hf::AddToken({.content = std::string(text), .id = TokenId{i}, .special = true}, parts));
    }
  }
  if (config != nullptr) NIBBLE_RETURN_IF_ERROR(hf::ApplyConfig(*config, parts));
  hf::FinishParts(parts);
  return parts;
}

}  // namespace nibble
