#include "base/utf8.h"
#include "tokenizer/hf_json.h"
#include "tokenizer/unicode.h"

namespace nibble::hf {
namespace {

Result<SplitBehavior> ParseBehavior(std::string_view name) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return BadInput(
      "behavior '{}' is not known (Removed, Isolated, MergedWithPrevious, "
      "MergedWithNext, Contiguous)",
      name);
}

bool IsAnyPunctuation(char32_t c) { return IsAsciiPunctuation(c) || IsUnicodePunctuation(c); }

Status AddRegex(std::string_view pattern, SplitBehavior behavior, bool invert, PreTokenizers& out) {
  NIBBLE_TRY(Regex regex, Regex::Compile(pattern, RegexDialect::kOniguruma));
  out.push_back(MakeRegexSplit(std::move(regex), behavior, invert));
  return {};
}

Status ParseSplit(JsonValue json, PreTokenizers& out) {
  NIBBLE_TRY(const JsonValue pattern_json, json.Get("pattern"));
  NIBBLE_TRY(const Pattern pattern, ParsePattern(pattern_json));
  NIBBLE_TRY(const std::string_view name, json.GetString("behavior"));
  NIBBLE_TRY(const SplitBehavior behavior, ParseBehavior(name));
  NIBBLE_TRY(const bool invert, json.GetBoolOr("invert", false));
  if (pattern.is_regex) {
    if (behavior == SplitBehavior::kIsolated && !invert) {
      NIBBLE_TRY(auto step, MakeIsolatedSplit(pattern.text));
      out.push_back(std::move(step));
      return {};
    }
    return AddRegex(pattern.text, behavior, invert, out);
  }
  if (pattern.text.empty()) return {};
  NIBBLE_TRY(Regex regex, Regex::Literal(pattern.text));
  out.push_back(MakeRegexSplit(std::move(regex), behavior, invert));
  return {};
}

Status ParseByteLevel(JsonValue json, PreTokenizers& out, PreTokenizerState& state) {
  NIBBLE_TRY(const bool prefix_space, json.GetBoolOr("add_prefix_space", true));
  NIBBLE_TRY(const bool use_regex, json.GetBoolOr("use_regex", true));
  if (prefix_space) out.push_back(MakePrefixSpace());
  if (use_regex) {
    NIBBLE_RETURN_IF_ERROR(AddRegex(kGpt2Pattern, SplitBehavior::kIsolated, false, out));
  }
  out.push_back(MakeByteLevelMap());
  state.byte_level = true;
  state.map_is_last = true;
  return {};
}

Status ParseMetaspace(JsonValue json, PreTokenizers& out) {
  NIBBLE_TRY(const std::string_view replacement, json.GetStringOr("replacement", kMetaspaceChar));
  NIBBLE_TRY(const bool prefix_space, json.GetBoolOr("add_prefix_space", true));
  NIBBLE_TRY(const std::string_view scheme,
             json.GetStringOr("prepend_scheme", prefix_space ? "always" : "never"));
  NIBBLE_TRY(const bool split, json.GetBoolOr("split", true));
  if (replacement.empty()) return BadInput("Metaspace: the replacement is empty");
  MetaspacePrepend prepend = MetaspacePrepend::kAlways;
  if (scheme == "first") {
    prepend = MetaspacePrepend::kFirst;
  } else if (scheme == "never" || !prefix_space) {
    prepend = MetaspacePrepend::kNever;
  } else if (scheme != "always") {
    return BadInput("Metaspace: prepend_scheme '{}' is not known (always, first, never)", scheme);
  }
  out.push_back(MakeMetaspace(std::string(replacement), prepend, split));
  return {};
}

Status ParseOther(std::string_view type, JsonValue json, PreTokenizers& out) {
  if (type == "Digits") {
    NIBBLE_TRY(const bool individual, json.GetBoolOr("individual_digits", false));
    out.push_back(MakeCharSplit(
        IsUnicodeNumeric, individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous));
  } else if (type == "Whitespace") {
    // Rust's \w has the two joiners as well.
    return AddRegex(R"([\w\x{200c}\x{200d}]+|[^\w\x{200c}\x{200d}\s]+)", SplitBehavior::kRemoved,
                    true, out);
  } else if (type == "WhitespaceSplit") {
    out.push_back(MakeCharSplit(IsUnicodeWhitespace, SplitBehavior::kRemoved));
  } else if (type == "Punctuation") {
    NIBBLE_TRY(const std::string_view name, json.GetStringOr("behavior", "Isolated"));
    NIBBLE_TRY(const SplitBehavior behavior, ParseBehavior(name));
    out.push_back(MakeCharSplit(IsAnyPunctuation, behavior));
  } else if (type == "BertPreTokenizer") {
    out.push_back(MakeCharSplit(IsUnicodeWhitespace, SplitBehavior::kRemoved));
    out.push_back(MakeCharSplit(IsAnyPunctuation, SplitBehavior::kIsolated));
  } else if (type == "CharDelimiterSplit") {
    NIBBLE_TRY(const std::string_view delimiter, json.GetString("delimiter"));
    if (delimiter.empty()) return BadInput("CharDelimiterSplit: the delimiter is empty");
    out.push_back(MakeDelimiterSplit(DecodeUtf8Safely(delimiter, 0).code, SplitBehavior::kRemoved));
  } else if (type == "FixedLength") {
    NIBBLE_TRY(const int64_t length, json.GetIntOr("length", 5));
    if (length <= 0) return BadInput("FixedLength: expected a positive length, found {}", length);
    out.push_back(MakeFixedLength(static_cast<size_t>(length)));
  } else {
    return BadInput("pre_tokenizer type '{}' is not known", type);
  }
  return {};
}

}  // namespace

Status ParsePreTokenizer(JsonValue json, int depth, PreTokenizers& out, PreTokenizerState& state) {
  if (json.is_null()) return {};
  if (depth > kMaxDepth) return BadInput("pre_tokenizer: nested more than {} deep", kMaxDepth);
  NIBBLE_TRY(const std::string_view type, json.GetString("type"));
  if (type == "Sequence") {
    NIBBLE_TRY(const JsonValue list_json, json.Get("pretokenizers"));
    NIBBLE_TRY(const JsonArray list, list_json.AsArray());
    for (const JsonValue item : list) {
      NIBBLE_RETURN_IF_ERROR(ParsePreTokenizer(item, depth + 1, out, state));
    }
    return {};
  }
  if (type == "ByteLevel") return ParseByteLevel(json, out, state);
  state.map_is_last = false;
  if (type == "Split") return ParseSplit(json, out);
  if (type == "Metaspace") return ParseMetaspace(json, out);
  return ParseOther(type, json, out);
}

}  // namespace nibble::hf
