#include <algorithm>

#include "container/json.h"
#include "tokenizer/hf_config.h"
#include "tokenizer/hf_json.h"
#include "tokenizer/load.h"
#include "tokenizer/load_parts.h"

namespace nibble {
namespace {

Status ParseAddedTokens(JsonValue root, TokenizerParts& parts) {
  const auto added = root.Find("added_tokens");
  if (!added || added->is_null()) return {};
  NIBBLE_TRY(const JsonArray list, added->AsArray());
  std::vector<bool> seen;
  size_t i = 0;
  for (const JsonValue item : list) {
    NIBBLE_TRY(const int64_t id, item.GetInt("id"));
    NIBBLE_TRY(AddedToken token, hf::ParseAddedToken(item, id));
    const auto index = static_cast<size_t>(id);
    if (index >= seen.size()) seen.resize(index + 1);
    if (seen[index]) return BadInput("added_tokens[{}]: id {} comes twice", i, id);
    seen[index] = true;
    if (parts.vocabulary.Has(id) && parts.vocabulary.IsSet(token.id) &&
        parts.vocabulary.Piece(token.id) != token.content) {
      return BadInput("added_tokens[{}]: '{}' has id {}, which model.vocab gives to '{}'", i,
                      token.content.substr(0, 80), id,
                      parts.vocabulary.Piece(token.id).substr(0, 80));
    }
    const TokenKind kind = token.special ? TokenKind::kControl : TokenKind::kUserDefined;
    NIBBLE_RETURN_IF_ERROR(parts.vocabulary.Set(id, token.content, kind));
    if (!token.content.empty()) parts.added.push_back(std::move(token));
    ++i;
  }
  return {};
}

// Decides whether the model sees bytes, and removes or undoes the mapping to GPT-2's characters.
bool FinishPreTokenizers(JsonValue model, const hf::PreTokenizerState& state, bool byte_normalizer,
                         PreTokenizers& steps) {
  if (!state.byte_level && !byte_normalizer) return false;
  const auto type = model.Find("type");
  const auto merges = model.Find("merges");
  const auto name = type ? type->AsString() : Result<std::string_view>("");
  const bool is_bpe = (name && *name == "BPE") || merges.has_value();
  const auto has_text = [&](std::string_view key) {
    const auto value = model.Find(key);
    const auto text = value ? value->AsString() : Result<std::string_view>("");
    return text && !text->empty();
  };
  // Prefixes, suffixes and unknown tokens are about characters: such a model keeps the mapped text.
  if (!is_bpe || has_text("continuing_subword_prefix") || has_text("end_of_word_suffix")) {
    return false;
  }
  if (state.map_is_last && !byte_normalizer) {
    steps.pop_back();
  } else {
    steps.push_back(MakeByteLevelUnmap());
  }
  return true;
}

bool HasByteNormalizer(JsonValue json) {
  const auto type = json.Find("type");
  const auto name = type ? type->AsString() : Result<std::string_view>("");
  if (name && *name == "ByteLevel") return true;
  const auto list_json = json.Find("normalizers");
  if (!list_json || !list_json->is_array()) return false;
  const JsonArray items = *list_json->AsArray();
  for (const JsonValue item : items) {
    const auto inner = item.Find("type");
    const auto inner_name = inner ? inner->AsString() : Result<std::string_view>("");
    if (inner_name && *inner_name == "ByteLevel") return true;
  }
  return false;
}

Result<TokenizerParts> ParseRoot(JsonValue root) {
  TokenizerParts parts;
  NIBBLE_TRY(const JsonValue model, root.Get("model"));
  NIBBLE_RETURN_IF_ERROR(hf::ParseVocabulary(model, parts));
  bool byte_normalizer = false;
  if (const auto normalizer = root.Find("normalizer")) {
    NIBBLE_RETURN_IF_ERROR(hf::ParseNormalizer(*normalizer, 0, parts.normalizers));
    byte_normalizer = HasByteNormalizer(*normalizer);
  }
  hf::PreTokenizerState state;
  if (const auto pre = root.Find("pre_tokenizer")) {
    NIBBLE_RETURN_IF_ERROR(hf::ParsePreTokenizer(*pre, 0, parts.pretokenizers, state));
  }
  const bool bytes = FinishPreTokenizers(model, state, byte_normalizer, parts.pretokenizers);
  NIBBLE_RETURN_IF_ERROR(hf::BuildModel(model, bytes, parts));
  NIBBLE_RETURN_IF_ERROR(ParseAddedTokens(root, parts));
  if (const auto post = root.Find("post_processor")) {
    NIBBLE_RETURN_IF_ERROR(hf::ParsePostProcessor(*post, 0, parts));
  }
  if (const auto decoder = root.Find("decoder")) {
    NIBBLE_RETURN_IF_ERROR(hf::ParseDecoder(*decoder, 0, parts.decoder));
  }
  parts.join_with_space = parts.decoder.empty();
  return parts;
}

}  // namespace

Result<TokenizerParts> TokenizerJsonParts(std::string tokenizer_json,
                                          const hf::TokenizerConfig* config) {
  NIBBLE_TRY(const JsonDocument document, JsonDocument::Parse(std::move(tokenizer_json)));
  NIBBLE_TRY(TokenizerParts parts, ParseRoot(document.root()));
  if (config != nullptr) NIBBLE_RETURN_IF_ERROR(hf::ApplyConfig(*config, parts));
  hf::FinishParts(parts);
  return parts;
}

Result<Tokenizer> ParseTokenizerJson(std::string_view tokenizer_json,
                                     std::string_view tokenizer_config_json) {
  try {
    std::optional<hf::TokenizerConfig> config;
    if (!tokenizer_config_json.empty()) {
      auto document = JsonDocument::Parse(std::string(tokenizer_config_json));
      if (!document) return Within("tokenizer_config.json", document.error());
      auto parsed = hf::ParseTokenizerConfig(document->root());
      if (!parsed) return Within("tokenizer_config.json", parsed.error());
      config = *std::move(parsed);
    }
    NIBBLE_TRY(TokenizerParts parts,
               TokenizerJsonParts(std::string(tokenizer_json), config ? &*config : nullptr));
    return Tokenizer::Make(std::move(parts));
  } catch (const std::bad_alloc&) {
    return Fail(ErrorKind::kNoRoom, "no memory for the tokenizer");
  }
}

}  // namespace nibble
