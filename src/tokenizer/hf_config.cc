#include "tokenizer/hf_config.h"

#include <algorithm>

namespace nibble::hf {
namespace {

// "bos_token": "<s>" or {"content": "<s>", …} or null.
Result<std::string> TokenText(JsonValue json, std::string_view key) {
  const auto value = json.Find(key);
  if (!value || value->is_null()) return std::string();
  if (value->is_object()) {
    NIBBLE_TRY(const std::string_view content, value->GetString("content"));
    return std::string(content);
  }
  if (!value->is_string()) return std::string();  // older files have false here
  NIBBLE_TRY(const std::string_view text, value->AsString());
  return std::string(text);
}

// A template, or a list of named ones of which "default" counts.
Result<std::string> TemplateText(JsonValue json) {
  const auto value = json.Find("chat_template");
  if (!value || value->is_null()) return std::string();
  if (value->is_string()) {
    NIBBLE_TRY(const std::string_view text, value->AsString());
    return std::string(text);
  }
  NIBBLE_TRY(const JsonArray list, value->AsArray());
  std::string chosen;
  for (const JsonValue item : list) {
    NIBBLE_TRY(const std::string_view name, item.GetString("name"));
    NIBBLE_TRY(const std::string_view text, item.GetString("template"));
    if (name == "default" || chosen.empty()) chosen = text;
    if (name == "default") break;
  }
  return chosen;
}

std::optional<TokenId> FindPiece(const TokenizerParts& parts, std::string_view text) {
  if (text.empty()) return std::nullopt;
  for (int i = 0; i < parts.vocabulary.size(); ++i) {
    if (parts.vocabulary.Piece(TokenId{i}) == text) return TokenId{i};
  }
  return std::nullopt;
}

}  // namespace

Result<TokenizerConfig> ParseTokenizerConfig(JsonValue json) {
  TokenizerConfig config;
  NIBBLE_TRY(const std::string_view class_name, json.GetStringOr("tokenizer_class", ""));
  config.tokenizer_class = class_name;
  NIBBLE_TRY(config.bos, TokenText(json, "bos_token"));
  NIBBLE_TRY(config.eos, TokenText(json, "eos_token"));
  NIBBLE_TRY(config.unknown, TokenText(json, "unk_token"));
  NIBBLE_TRY(config.pad, TokenText(json, "pad_token"));
  if (const auto add = json.Find("add_bos_token"); add && add->is_bool()) {
    NIBBLE_TRY(config.add_bos, add->AsBool());
  }
  if (const auto add = json.Find("add_eos_token"); add && add->is_bool()) {
    NIBBLE_TRY(config.add_eos, add->AsBool());
  }
  if (const auto added = json.Find("added_tokens_decoder"); added && added->is_object()) {
    NIBBLE_TRY(const JsonObject members, added->AsObject());
    for (const auto [key, value] : members) {
      int64_t id = 0;
      for (const char c : key) {
        if (c < '0' || c > '9' || id > INT32_MAX / 10) {
          return BadInput("added_tokens_decoder: '{}' is no token id", key.substr(0, 40));
        }
        id = id * 10 + (c - '0');
      }
      if (id > INT32_MAX) return BadInput("added_tokens_decoder: '{}' is no token id", key);
      NIBBLE_TRY(AddedToken token, ParseAddedToken(value, id));
      config.added.push_back(std::move(token));
    }
  }
  if (const auto more = json.Find("additional_special_tokens"); more && more->is_array()) {
    NIBBLE_TRY(const JsonArray list, more->AsArray());
    for (const JsonValue item : list) {
      if (!item.is_string()) continue;
      NIBBLE_TRY(const std::string_view text, item.AsString());
      config.additional.emplace_back(text);
    }
  }
  NIBBLE_TRY(config.chat_template, TemplateText(json));
  return config;
}

Result<AddedToken> ParseAddedToken(JsonValue json, int64_t id) {
  if (id < 0 || id >= static_cast<int64_t>(Vocabulary::kMaxTokens)) {
    return BadInput("added token id {} is outside 0 … {}", id, Vocabulary::kMaxTokens - 1);
  }
  AddedToken token;
  token.id = TokenId{static_cast<int32_t>(id)};
  NIBBLE_TRY(const std::string_view content, json.GetString("content"));
  token.content = content;
  NIBBLE_TRY(token.special, json.GetBoolOr("special", false));
  NIBBLE_TRY(token.single_word, json.GetBoolOr("single_word", false));
  NIBBLE_TRY(token.lstrip, json.GetBoolOr("lstrip", false));
  NIBBLE_TRY(token.rstrip, json.GetBoolOr("rstrip", false));
  NIBBLE_TRY(token.normalized, json.GetBoolOr("normalized", !token.special));
  return token;
}

Status AddToken(AddedToken token, TokenizerParts& parts) {
  if (token.content.empty()) return {};
  Vocabulary& vocabulary = parts.vocabulary;
  if (vocabulary.Has(token.id.value()) && vocabulary.IsSet(token.id) &&
      vocabulary.Piece(token.id) != token.content) {
    return BadInput("added token '{}' has id {}, which the vocabulary gives to '{}'",
                    token.content.substr(0, 80), token.id.value(),
                    vocabulary.Piece(token.id).substr(0, 80));
  }
  const TokenKind kind = token.special ? TokenKind::kControl : TokenKind::kUserDefined;
  NIBBLE_RETURN_IF_ERROR(vocabulary.Set(token.id.value(), token.content, kind));
  for (AddedToken& old : parts.added) {
    if (old.id == token.id) {
      old = std::move(token);
      return {};
    }
  }
  parts.added.push_back(std::move(token));
  return {};
}

Status ApplyConfig(const TokenizerConfig& config, TokenizerParts& parts) {
  std::vector<bool> known(static_cast<size_t>(parts.vocabulary.size()));
  for (const AddedToken& token : parts.added) {
    known[static_cast<size_t>(token.id.value())] = true;
  }
  for (const AddedToken& token : config.added) {
    const auto id = static_cast<size_t>(token.id.value());
    if (id < known.size() && known[id]) continue;
    NIBBLE_RETURN_IF_ERROR(AddToken(token, parts));
  }
  for (const std::string& text : config.additional) {
    if (const auto id = FindPiece(parts, text)) {
      const bool added = std::ranges::any_of(
          parts.added, [&](const AddedToken& token) { return token.id == *id; });
      if (!added) {
        NIBBLE_RETURN_IF_ERROR(AddToken({.content = text, .id = *id, .special = true}, parts));
      }
    }
  }
  const auto named = [&](const std::string& text, std::optional<TokenId>& out) {
    if (const auto id = FindPiece(parts, text)) out = id;
  };
  named(config.bos, parts.bos);
  named(config.eos, parts.eos);
  named(config.unknown, parts.unknown);
  named(config.pad, parts.pad);
  if (config.add_bos || config.add_eos) {
    parts.prefix.clear();
    parts.suffix.clear();
    if (config.add_bos.value_or(false) && parts.bos) parts.prefix.push_back(*parts.bos);
    if (config.add_eos.value_or(false) && parts.eos) parts.suffix.push_back(*parts.eos);
  }
  parts.chat_template = config.chat_template;
  return {};
}

Result<std::vector<TokenId>> ParseEndTokenIds(JsonValue json) {
  std::vector<TokenId> ids;
  const auto value = json.Find("eos_token_id");
  if (!value || value->is_null()) return ids;
  const auto add = [&](JsonValue item) -> Status {
    NIBBLE_TRY(const int64_t id, item.AsInt());
    if (id >= 0 && id <= INT32_MAX) ids.emplace_back(static_cast<int32_t>(id));
    return {};
  };
  if (!value->is_array()) {
    NIBBLE_RETURN_IF_ERROR(add(*value));
    return ids;
  }
  NIBBLE_TRY(const JsonArray list, value->AsArray());
  for (const JsonValue item : list) NIBBLE_RETURN_IF_ERROR(add(item));
  return ids;
}

void FinishParts(TokenizerParts& parts) {
  AddEndTokensByText(parts);
  if (!parts.bos && !parts.prefix.empty()) parts.bos = parts.prefix.front();
  if (!parts.eos && parts.end_tokens.size() == 1) parts.eos = parts.end_tokens.front();
  parts.description += fmt::format(", {} tokens", parts.vocabulary.size());
}

}  // namespace nibble::hf
