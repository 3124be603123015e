#include "tokenizer/hf_json.h"

namespace nibble::hf {
namespace {

Status ParseReplace(JsonValue json, DecoderSteps& out) {
  NIBBLE_TRY(const JsonValue pattern_json, json.Get("pattern"));
  NIBBLE_TRY(const Pattern pattern, ParsePattern(pattern_json));
  NIBBLE_TRY(const std::string_view content, json.GetString("content"));
  if (!pattern.is_regex) {
    out.push_back(MakeReplaceDecoder(pattern.text, std::string(content)));
    return {};
  }
  NIBBLE_TRY(Regex regex, Regex::Compile(pattern.text, RegexDialect::kOniguruma));
  out.push_back(MakeRegexReplaceDecoder(std::move(regex), std::string(content)));
  return {};
}

Status ParseMetaspace(JsonValue json, DecoderSteps& out) {
  NIBBLE_TRY(const std::string_view replacement, json.GetStringOr("replacement", kMetaspaceChar));
  NIBBLE_TRY(const bool prefix_space, json.GetBoolOr("add_prefix_space", true));
  NIBBLE_TRY(const std::string_view scheme,
             json.GetStringOr("prepend_scheme", prefix_space ? "always" : "never"));
  out.push_back(MakeMetaspaceDecoder(std::string(replacement), prefix_space && scheme != "never"));
  return {};
}

Status ParseStrip(JsonValue json, DecoderSteps& out) {
  NIBBLE_TRY(const std::string_view content, json.GetString("content"));
  NIBBLE_TRY(const int64_t start, json.GetIntOr("start", 0));
  NIBBLE_TRY(const int64_t stop, json.GetIntOr("stop", 0));
  if (start < 0 || stop < 0) return BadInput("Strip: start and stop must not be negative");
  out.push_back(MakeStripDecoder(std::string(content), static_cast<size_t>(start),
                                 static_cast<size_t>(stop)));
  return {};
}

}  // namespace

Status ParseDecoder(JsonValue json, int depth, DecoderSteps& out) {
  if (json.is_null()) return {};
  if (depth > kMaxDepth) return BadInput("decoder: nested more than {} deep", kMaxDepth);
  NIBBLE_TRY(const std::string_view type, json.GetString("type"));
  if (type == "Sequence") {
    NIBBLE_TRY(const JsonValue list_json, json.Get("decoders"));
    NIBBLE_TRY(const JsonArray list, list_json.AsArray());
    for (const JsonValue item : list) {
      NIBBLE_RETURN_IF_ERROR(ParseDecoder(item, depth + 1, out));
    }
    return {};
  }
  if (type == "ByteLevel") {
    // Its characters may be split over tokens: bytes are joined, which the caller does anyway.
    out.push_back(MakeByteLevelDecoder());
  } else if (type == "Metaspace") {
    return ParseMetaspace(json, out);
  } else if (type == "WordPiece") {
    NIBBLE_TRY(const std::string_view prefix, json.GetStringOr("prefix", "##"));
    NIBBLE_TRY(const bool cleanup, json.GetBoolOr("cleanup", true));
    out.push_back(MakeWordPieceDecoder(std::string(prefix), cleanup));
  } else if (type == "BPEDecoder") {
    NIBBLE_TRY(const std::string_view suffix, json.GetStringOr("suffix", "</w>"));
    out.push_back(MakeBpeDecoder(std::string(suffix)));
  } else if (type == "ByteFallback") {
    out.push_back(MakeByteFallbackDecoder());
  } else if (type == "Fuse") {
    out.push_back(MakeFuseDecoder());
  } else if (type == "Strip") {
    return ParseStrip(json, out);
  } else if (type == "Replace") {
    return ParseReplace(json, out);
  } else if (type == "CTC") {
    NIBBLE_TRY(const std::string_view pad, json.GetStringOr("pad_token", "<pad>"));
    NIBBLE_TRY(const std::string_view word, json.GetStringOr("word_delimiter_token", "|"));
    NIBBLE_TRY(const bool cleanup, json.GetBoolOr("cleanup", true));
    out.push_back(MakeCtcDecoder(std::string(pad), std::string(word), cleanup));
  } else {
    return BadInput("decoder type '{}' is not known", type);
  }
  return {};
}

}  // namespace nibble::hf
