#include "tokenizer/hf_json.h"

namespace nibble::hf {
namespace {

// {"SpecialToken": {"id": "[CLS]"}} and {"Sequence": {"id": "A"}}, with the ids behind the names.
Status ParseTemplate(JsonValue json, TokenizerParts& parts) {
  NIBBLE_TRY(const JsonValue list_json, json.Get("single"));
  NIBBLE_TRY(const JsonArray list, list_json.AsArray());
  const auto tokens = json.Find("special_tokens");
  bool behind = false;
  for (const JsonValue item : list) {
    if (item.Find("Sequence")) {
      behind = true;
      continue;
    }
    const auto special = item.Find("SpecialToken");
    if (!special) return BadInput("TemplateProcessing: expected a Sequence or a SpecialToken");
    NIBBLE_TRY(const std::string_view name, special->GetString("id"));
    const auto entry = tokens ? tokens->Find(name) : std::nullopt;
    if (!entry) return BadInput("TemplateProcessing: '{}' is not in special_tokens", name);
    NIBBLE_TRY(const JsonValue ids_json, entry->Get("ids"));
    NIBBLE_TRY(const JsonArray ids, ids_json.AsArray());
    for (const JsonValue id_json : ids) {
      NIBBLE_TRY(const int64_t id, id_json.AsInt());
      NIBBLE_TRY(const TokenId token, CheckedId(parts.vocabulary, id, "TemplateProcessing"));
      (behind ? parts.suffix : parts.prefix).push_back(token);
    }
  }
  return {};
}

// ["[CLS]", 101]
Result<TokenId> ParsePair(JsonValue json, std::string_view key, const TokenizerParts& parts) {
  NIBBLE_TRY(const JsonValue pair_json, json.Get(key));
  NIBBLE_TRY(const JsonArray pair, pair_json.AsArray());
  if (pair.size() != 2) return BadInput("post_processor.{}: expected [text, id]", key);
  auto it = pair.begin();
  ++it;
  NIBBLE_TRY(const int64_t id, (*it).AsInt());
  return CheckedId(parts.vocabulary, id, key);
}

}  // namespace

Status ParsePostProcessor(JsonValue json, int depth, TokenizerParts& parts) {
  if (json.is_null()) return {};
  if (depth > kMaxDepth) return BadInput("post_processor: nested more than {} deep", kMaxDepth);
  NIBBLE_TRY(const std::string_view type, json.GetString("type"));
  if (type == "Sequence") {
    NIBBLE_TRY(const JsonValue list_json, json.Get("processors"));
    NIBBLE_TRY(const JsonArray list, list_json.AsArray());
    for (const JsonValue item : list) {
      NIBBLE_RETURN_IF_ERROR(ParsePostProcessor(item, depth + 1, parts));
    }
    return {};
  }
  if (type == "ByteLevel") return {};  // changes offsets only
  if (type == "TemplateProcessing") return ParseTemplate(json, parts);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    NIBBLE_TRY(const TokenId cls, ParsePair(json, "cls", parts));
    NIBBLE_TRY(const TokenId sep, ParsePair(json, "sep", parts));
    parts.prefix.insert(parts.prefix.begin(), cls);
    parts.suffix.push_back(sep);
    return {};
  }
  return BadInput("post_processor type '{}' is not known", type);
}

}  // namespace nibble::hf
