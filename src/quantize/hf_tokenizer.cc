#include "quantize/hf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "container/gguf.h"
#include "container/json_text.h"
#include "tokenizer/pre_types.h"
#include "tokenizer/tokenizer.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // "▁"

enum GgufTokenType : int64_t {
  kNormalToken = 1,
  kUnknownToken,
  kControlToken,
  kUserToken,
  kUnusedToken,
  kByteToken
};

std::string JsonOf(std::string_view text) {
  std::string out;
  AppendJsonString(text, out);
  return out;
}

Json ReplaceStep(std::string_view from, std::string_view to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

Json SequenceOf(const char* key, Json steps) {
  return {{"type", "Sequence"}, {key, std::move(steps)}};
}

class HfTokenizerMaker {
 public:
  HfTokenizerMaker(const GgufFile& file, const Tokenizer& tokenizer)
      : file_(file), tokenizer_(tokenizer) {}

  Result<HfTokenizerFiles> Make();

 private:
  Status ReadTokens();
  Status ByteLevel();
  Status SentencePiece();
  // Spaces are "▁" in the vocabulary; bytes without a piece are "<0x0A>".
  void EscapeSpaces(bool prefix);
  Status ReadMerges();
  void ScoreMerges(const std::vector<float>& scores);
  void Splits(size_t id, float score);
  std::string VocabularyText() const;
  std::string MergesText() const;
  Json AddedTokens() const;
  Json PostProcessor() const;
  std::string Config() const;

  const GgufFile& file_;
  const Tokenizer& tokenizer_;
  std::vector<std::string_view> tokens_;
  std::vector<int64_t> types_;
  Json normalizer_, pre_, decoder_;
  bool whole_piece_ = false;
  bool byte_fallback_ = false;
  bool space_prefix_ = false;
  struct Merge {
    std::string_view left, right;
    float score = 0;
    uint32_t left_size = 0;  // characters
    uint32_t size = 0;
  };
  std::unordered_map<std::string_view, int> ids_;
  std::vector<Merge> merges_;
};

Status HfTokenizerMaker::ReadTokens() {
  NIBBLE_TRY(tokens_, file_.GetStrings("tokenizer.ggml.tokens"));
  types_.assign(tokens_.size(), kNormalToken);
  if (file_.Has("tokenizer.ggml.token_type")) {
    NIBBLE_TRY(types_, file_.GetInts("tokenizer.ggml.token_type"));
    types_.resize(tokens_.size(), kNormalToken);
  }
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (!IsValidUtf8(tokens_[i])) {
      return BadInput("tokenizer.ggml.tokens[{}] is no UTF-8, which tokenizer.json needs", i);
    }
    ids_.emplace(tokens_[i], static_cast<int>(i));
  }
  return {};
}

Status HfTokenizerMaker::ReadMerges() {
  NIBBLE_TRY(const auto lines, file_.GetStrings("tokenizer.ggml.merges"));
  for (const std::string_view line : lines) {
    const size_t space = line.find(' ', 1);
    if (space == std::string_view::npos) return BadInput("tokenizer.ggml.merges: '{}'", line);
    merges_.push_back({.left = line.substr(0, space), .right = line.substr(space + 1)});
  }
  return {};
}

void HfTokenizerMaker::EscapeSpaces(bool prefix) {
  byte_fallback_ = true;
  space_prefix_ = prefix;
  Json steps = Json::array();
  if (prefix) steps.push_back({{"type", "Prepend"}, {"prepend", kSpaceMark}});
  steps.push_back(ReplaceStep(" ", kSpaceMark));
  normalizer_ = SequenceOf("normalizers", std::move(steps));
  Json back = {ReplaceStep(kSpaceMark, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
  if (prefix) {
    back.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  decoder_ = SequenceOf("decoders", std::move(back));
}

Status HfTokenizerMaker::ByteLevel() {
  NIBBLE_TRY(const std::string_view name, file_.GetStringOr("tokenizer.ggml.pre", "default"));
  const PreType* type = FindPreType(name);
  if (type == nullptr || type->name == "whitespace" || (type->characters && !type->escape_spaces)) {
    return BadInput("tokenizer.ggml.pre '{}' has no form in tokenizer.json", name);
  }
  whole_piece_ = type->whole_piece;
  Json steps = Json::array();
  for (const std::string_view expression : type->expressions) {
    if (expression.empty()) continue;
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", expression}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  if (type->escape_spaces) {
    EscapeSpaces(false);
  } else {
    steps.push_back({{"type", "ByteLevel"},
                     {"add_prefix_space", false},
                     {"trim_offsets", true},
                     {"use_regex", false}});
    decoder_ = {{"type", "ByteLevel"},
                {"add_prefix_space", true},
                {"trim_offsets", true},
                {"use_regex", true}};
  }
  pre_ = SequenceOf("pretokenizers", std::move(steps));
  return ReadMerges();
}

Status HfTokenizerMaker::SentencePiece() {
  NIBBLE_TRY(const bool prefix, file_.GetBoolOr("tokenizer.ggml.add_space_prefix", true));
  NIBBLE_TRY(std::vector<float> scores, file_.GetFloats("tokenizer.ggml.scores"));
  scores.resize(tokens_.size());
  EscapeSpaces(prefix);
  ScoreMerges(scores);
  return {};
}

void HfTokenizerMaker::Splits(size_t id, float score) {
  const std::string_view piece = tokens_[id];
  const auto starts = [&](size_t at) {
    return (static_cast<unsigned char>(piece[at]) & 0xC0) != 0x80;
  };
  uint32_t size = 0;
  for (size_t at = 0; at < piece.size(); ++at) size += starts(at) ? 1 : 0;
  uint32_t left = 0;
  const size_t first = merges_.size();
  for (size_t at = 1; at < piece.size(); ++at) {
    if (!starts(at)) continue;
    ++left;
    const std::string_view head = piece.substr(0, at);
    const std::string_view tail = piece.substr(at);
    if (!ids_.contains(head) || !ids_.contains(tail)) continue;
    merges_.push_back(
        {.left = head, .right = tail, .score = score, .left_size = left, .size = size});
  }
  std::sort(merges_.begin() + static_cast<ptrdiff_t>(first), merges_.end(),
            [&](const Merge& a, const Merge& b) {
              return std::pair(ids_.at(a.left), ids_.at(a.right)) <
                     std::pair(ids_.at(b.left), ids_.at(b.right));
            });
}

void HfTokenizerMaker::ScoreMerges(const std::vector<float>& scores) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const bool text =
        types_[i] == kNormalToken || types_[i] == kUserToken || types_[i] == kUnusedToken;
    if (text && tokens_[i].size() <= 1024) Splits(i, scores[i]);
  }
  // transformers sorts by (score, left, right) downwards.
  std::stable_sort(merges_.begin(), merges_.end(), [](const Merge& a, const Merge& b) {
    if (a.score != b.score) return a.score > b.score;
    if (a.left_size != b.left_size) return a.left_size > b.left_size;
    return a.size > b.size;
  });
}

std::string HfTokenizerMaker::VocabularyText() const {
  std::string out = "{";
  for (size_t i = 0; i < tokens_.size(); ++i) {
    out += i == 0 ? "\n    " : ",\n    ";
    // What llama.cpp and nibble name a token without text.
    AppendJsonString(tokens_[i].empty() ? fmt::format("[EMPTY_{}]", i) : tokens_[i], out);
    out += fmt::format(": {}", i);
  }
  return out + "\n  }";
}

std::string HfTokenizerMaker::MergesText() const {
  std::string out = "[";
  for (size_t i = 0; i < merges_.size(); ++i) {
    out += i == 0 ? "\n    [" : ",\n    [";
    AppendJsonString(merges_[i].left, out);
    out += ", ";
    AppendJsonString(merges_[i].right, out);
    out += "]";
  }
  return out + "\n  ]";
}

Json HfTokenizerMaker::AddedTokens() const {
  Json list = Json::array();
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const bool special = types_[i] == kControlToken || types_[i] == kUnknownToken;
    if ((!special && types_[i] != kUserToken) || tokens_[i].empty()) continue;
    list.push_back({{"id", i},
                    {"content", tokens_[i]},
                    {"single_word", false},
                    {"lstrip", tokens_[i] == "<mask>" || tokens_[i] == "[MASK]"},
                    {"rstrip", false},
                    {"normalized", false},
                    {"special", special}});
  }
  return list;
}

Json HfTokenizerMaker::PostProcessor() const {
  Json single = Json::array();
  Json pair = Json::array();
  Json known = Json::object();
  const auto add = [&](TokenId id) {
    const std::string piece(tokenizer_.Piece(id));
    single.push_back({{"SpecialToken", {{"id", piece}, {"type_id", 0}}}});
    pair.push_back({{"SpecialToken", {{"id", piece}, {"type_id", 0}}}});
    known[piece] = {
        {"id", piece}, {"ids", Json::array({id.value()})}, {"tokens", Json::array({piece})}};
  };
  if (tokenizer_.adds_bos() && tokenizer_.bos()) add(*tokenizer_.bos());
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  pair.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  if (tokenizer_.adds_eos() && tokenizer_.eos()) add(*tokenizer_.eos());
  if (known.empty()) return nullptr;
  pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", pair},
          {"special_tokens", known}};
}

std::string HfTokenizerMaker::Config() const {
  Json json;
  json["tokenizer_class"] = "PreTrainedTokenizerFast";
  const auto name = [&](const char* key, std::optional<TokenId> id) {
    json[key] = id ? Json(std::string(tokenizer_.Piece(*id))) : Json();
  };
  name("bos_token", tokenizer_.bos());
  name("eos_token", tokenizer_.eos());
  name("unk_token", tokenizer_.unknown());
  name("pad_token", tokenizer_.pad());
  json["clean_up_tokenization_spaces"] = false;
  if (!tokenizer_.chat_template().empty()) json["chat_template"] = tokenizer_.chat_template();
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<HfTokenizerFiles> HfTokenizerMaker::Make() {
  NIBBLE_TRY(const std::string_view model, file_.GetString("tokenizer.ggml.model"));
  if (model != "gpt2" && model != "llama") {
    return BadInput(
        "tokenizer.ggml.model '{}': only gpt2 and llama can be written as tokenizer.json", model);
  }
  NIBBLE_RETURN_IF_ERROR(ReadTokens());
  NIBBLE_RETURN_IF_ERROR(model == "gpt2" ? ByteLevel() : SentencePiece());
  const std::optional<TokenId> unknown = byte_fallback_ ? tokenizer_.unknown() : std::nullopt;
  HfTokenizerFiles files;
  const auto text = [](const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  files.tokenizer_json = fmt::format(
      "{{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n"
      "  \"added_tokens\": {},\n  \"normalizer\": {},\n  \"pre_tokenizer\": {},\n"
      "  \"post_processor\": {},\n  \"decoder\": {},\n  \"model\": {{\n  \"type\": \"BPE\",\n"
      "  \"dropout\": null,\n  \"unk_token\": {},\n  \"continuing_subword_prefix\": null,\n"
      "  \"end_of_word_suffix\": null,\n  \"fuse_unk\": {},\n  \"byte_fallback\": {},\n"
      "  \"ignore_merges\": {},\n",
      text(AddedTokens()), text(normalizer_), text(pre_), text(PostProcessor()), text(decoder_),
      unknown ? JsonOf(tokenizer_.Piece(*unknown)) : "null", byte_fallback_, byte_fallback_,
      whole_piece_);
  files.tokenizer_json +=
      "  \"vocab\": " + VocabularyText() + ",\n  \"merges\": " + MergesText() + "\n  }\n}\n";
  files.tokenizer_config_json = Config();
  return files;
}

}  // namespace

Result<HfTokenizerFiles> HfTokenizerFromGguf(const GgufFile& file, const Tokenizer& tokenizer) {
  return HfTokenizerMaker(file, tokenizer).Make();
}

}  // namespace nibble
