#include <array>

#include "tokenizer/hf_json.h"

namespace nibble::hf {
namespace {

// Base64 as the charsmap is written in JSON.
Result<std::string> DecodeBase64(std::string_view text) {
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    int value;
    if (c >= 'A' && c <= 'Z') {
      value = c - 'A';
    } else if (c >= 'a' && c <= 'z') {
      value = c - 'a' + 26;
    } else if (c >= '0' && c <= '9') {
      value = c - '0' + 52;
    } else if (c == '+') {
      value = 62;
    } else if (c == '/') {
      value = 63;
    } else if (c == '=') {
      break;
    } else {
      return BadInput("precompiled_charsmap: '{}' is no base64 character", c);
    }
    bits = bits << 6 | static_cast<uint32_t>(value);
    if (++count == 4) {
      out += static_cast<char>(bits >> 16);
      out += static_cast<char>(bits >> 8);
      out += static_cast<char>(bits);
      bits = 0;
      count = 0;
    }
  }
  if (count >= 2) out += static_cast<char>(bits >> (count == 2 ? 4 : 10));
  if (count == 3) out += static_cast<char>(bits >> 2);
  return out;
}

Status ParseBert(JsonValue json, Normalizers& out) {
  BertOptions options;
  NIBBLE_TRY(options.clean_text, json.GetBoolOr("clean_text", true));
  NIBBLE_TRY(options.handle_chinese_chars, json.GetBoolOr("handle_chinese_chars", true));
  NIBBLE_TRY(options.lowercase, json.GetBoolOr("lowercase", true));
  NIBBLE_TRY(options.strip_accents, json.GetBoolOr("strip_accents", options.lowercase));
  out.push_back(MakeBert(options));
  return {};
}

Status ParseReplace(JsonValue json, Normalizers& out) {
  NIBBLE_TRY(const JsonValue pattern_json, json.Get("pattern"));
  NIBBLE_TRY(const Pattern pattern, ParsePattern(pattern_json));
  NIBBLE_TRY(const std::string_view content, json.GetString("content"));
  if (!pattern.is_regex) {
    out.push_back(MakeReplaceText(pattern.text, std::string(content)));
    return {};
  }
  NIBBLE_TRY(Regex regex, Regex::Compile(pattern.text, RegexDialect::kOniguruma));
  out.push_back(MakeReplace(std::move(regex), std::string(content)));
  return {};
}

Status ParseSimple(std::string_view type, JsonValue json, Normalizers& out) {
  if (type == "NFC") {
    out.push_back(MakeUnicodeForm(NormalForm::kNfc));
  } else if (type == "NFD") {
    out.push_back(MakeUnicodeForm(NormalForm::kNfd));
  } else if (type == "NFKC") {
    out.push_back(MakeUnicodeForm(NormalForm::kNfkc));
  } else if (type == "NFKD") {
    out.push_back(MakeUnicodeForm(NormalForm::kNfkd));
  } else if (type == "Lowercase") {
    out.push_back(MakeLowercase());
  } else if (type == "StripAccents") {
    out.push_back(MakeStripAccents());
  } else if (type == "Nmt") {
    out.push_back(MakeNmt());
  } else if (type == "ByteLevel") {
    out.push_back(MakeByteLevelNormalizer());
  } else if (type == "Strip") {
    NIBBLE_TRY(const bool left, json.GetBoolOr("strip_left", true));
    NIBBLE_TRY(const bool right, json.GetBoolOr("strip_right", true));
    out.push_back(MakeStrip(left, right));
  } else if (type == "Prepend") {
    NIBBLE_TRY(const std::string_view prefix, json.GetString("prepend"));
    out.push_back(MakePrepend(std::string(prefix)));
  } else {
    return BadInput("normalizer type '{}' is not known", type);
  }
  return {};
}

}  // namespace

Result<Pattern> ParsePattern(JsonValue json) {
  if (json.is_string()) {
    NIBBLE_TRY(const std::string_view text, json.AsString());
    return Pattern{std::string(text), false};
  }
  if (const auto text = json.Find("String")) {
    NIBBLE_TRY(const std::string_view view, text->AsString());
    return Pattern{std::string(view), false};
  }
  if (const auto text = json.Find("Regex")) {
    NIBBLE_TRY(const std::string_view view, text->AsString());
    return Pattern{std::string(view), true};
  }
  return BadInput("pattern: expected {{\"String\": …}} or {{\"Regex\": …}}");
}

Status ParseNormalizer(JsonValue json, int depth, Normalizers& out) {
  if (json.is_null()) return {};
  if (depth > kMaxDepth) return BadInput("normalizer: nested more than {} deep", kMaxDepth);
  NIBBLE_TRY(const std::string_view type, json.GetString("type"));
  if (type == "Sequence") {
    NIBBLE_TRY(const JsonValue list_json, json.Get("normalizers"));
    NIBBLE_TRY(const JsonArray list, list_json.AsArray());
    for (const JsonValue item : list) {
      NIBBLE_RETURN_IF_ERROR(ParseNormalizer(item, depth + 1, out));
    }
    return {};
  }
  if (type == "BertNormalizer") return ParseBert(json, out);
  if (type == "Replace") return ParseReplace(json, out);
  if (type == "Precompiled") {
    NIBBLE_TRY(const std::string_view encoded, json.GetStringOr("precompiled_charsmap", ""));
    NIBBLE_TRY(const std::string bytes, DecodeBase64(encoded));
    NIBBLE_TRY(Charsmap charsmap, Charsmap::Parse(bytes));
    if (!charsmap.empty()) out.push_back(MakePrecompiled(std::move(charsmap)));
    return {};
  }
  return ParseSimple(type, json, out);
}

}  // namespace nibble::hf
