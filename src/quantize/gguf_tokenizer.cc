#include "quantize/gguf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "container/gguf.h"
#include "container/gguf_writer.h"
#include "container/json.h"
#include "quantize/tokenizer_samples.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/load.h"
#include "tokenizer/pre_types.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

// GGUF's token types.
enum TokenType : int32_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

struct Keys {
  std::string model;  // "gpt2", "llama"
  std::string pre;
  std::vector<std::string> merges;
  std::vector<float> scores;
  bool space_prefix = false;
  // The vocabulary holds characters; GGUF's holds bytes in GPT-2's spelling. Characters that it
  // lacks have no token there, whatever the tokenizer's own file puts in their place.
  bool characters = false;
  std::vector<int32_t> types;
};

bool IsByteToken(std::string_view piece) {
  return piece.size() == 6 && piece.starts_with("<0x") && piece.ends_with(">");
}

// Types from the tokenizer itself: what is special in tokenizer.json is control here.
std::vector<int32_t> TypesOf(const Tokenizer& tokenizer, bool byte_tokens) {
  std::vector<int32_t> types;
  for (int i = 0; i < tokenizer.vocab_size(); ++i) {
    const TokenId id{i};
    const std::string_view piece = tokenizer.Piece(id);
    int32_t type = kNormal;
    if (piece.empty()) type = kUnused;
    if (byte_tokens && IsByteToken(piece)) type = kByte;
    if (tokenizer.IsControl(id)) type = kControl;
    if (byte_tokens && tokenizer.unknown() == id) type = kUnknown;
    types.push_back(type);
  }
  return types;
}

Result<std::vector<std::string>> ReadMerges(JsonValue model) {
  std::vector<std::string> merges;
  NIBBLE_TRY(const JsonValue list_json, model.Get("merges"));
  NIBBLE_TRY(const JsonArray list, list_json.AsArray());
  for (const JsonValue item : list) {
    if (item.is_string()) {
      NIBBLE_TRY(const std::string_view line, item.AsString());
      merges.emplace_back(line);
      continue;
    }
    NIBBLE_TRY(const JsonArray pair, item.AsArray());
    std::string line;
    for (const JsonValue side : pair) {
      NIBBLE_TRY(const std::string_view text, side.AsString());
      line += (line.empty() ? "" : " ") + std::string(text);
    }
    merges.push_back(std::move(line));
  }
  return merges;
}

// SentencePiece merges the pair whose piece scores highest: the earlier merge, the higher score.
std::vector<float> ScoresOf(const std::vector<std::string>& merges, const Tokenizer& tokenizer) {
  std::map<std::string, size_t, std::less<>> rank;
  for (size_t i = 0; i < merges.size(); ++i) {
    std::string piece = merges[i];
    std::erase(piece, ' ');
    rank.emplace(std::move(piece), i);
  }
  std::vector<float> scores;
  for (int i = 0; i < tokenizer.vocab_size(); ++i) {
    const auto found = rank.find(tokenizer.Piece(TokenId{i}));
    scores.push_back(found == rank.end() ? -1e9F : -static_cast<float>(found->second));
  }
  return scores;
}

// Added tokens that are no control tokens are found in a text before it is cut.
Status MarkAddedTokens(JsonValue root, std::vector<int32_t>& types) {
  const auto added = root.Find("added_tokens");
  if (!added || !added->is_array()) return {};
  NIBBLE_TRY(const JsonArray list, added->AsArray());
  for (const JsonValue token : list) {
    NIBBLE_TRY(const int64_t id, token.GetInt("id"));
    NIBBLE_TRY(const bool special, token.GetBoolOr("special", false));
    if (id < 0 || id >= std::ssize(types)) continue;
    int32_t& type = types[static_cast<size_t>(id)];
    if (type == kNormal || type == kControl) type = special ? kControl : kUserDefined;
  }
  return {};
}

Result<Keys> KeysFromJson(const fs::path& file, const Tokenizer& tokenizer) {
  NIBBLE_TRY(const JsonDocument document, JsonDocument::ReadFile(file.string()));
  NIBBLE_TRY(const JsonValue model, document.root().Get("model"));
  NIBBLE_TRY(const std::string_view type, model.GetStringOr("type", "BPE"));
  if (type != "BPE") {
    return BadInput("{}: a {} tokenizer, which nibble cannot write into a GGUF file (BPE only)",
                    file.string(), type);
  }
  NIBBLE_TRY(const bool fallback, model.GetBoolOr("byte_fallback", false));
  Keys keys;
  keys.model = fallback ? "llama" : "gpt2";
  keys.types = TypesOf(tokenizer, fallback);
  NIBBLE_RETURN_IF_ERROR(MarkAddedTokens(document.root(), keys.types));
  NIBBLE_TRY(keys.merges, ReadMerges(model));
  // Bytes are in the vocabulary in GPT-2's spelling, a space as "Ġ" and never as itself.
  keys.characters = !fallback && tokenizer.Find(" ").has_value() && !tokenizer.Find("\u0120");
  if (!fallback) return keys;
  keys.scores = ScoresOf(keys.merges, tokenizer);
  keys.merges.clear();
  return keys;
}

void SetId(std::string_view key, TokenId id, GgufWriter& writer) {
  writer.SetUint32(fmt::format("tokenizer.ggml.{}_token_id", key),
                   static_cast<uint32_t>(id.value()));
}

void SetSpecialIds(const Tokenizer& tokenizer, GgufWriter& writer) {
  // Without a key GGUF's readers take an id by the kind of tokenizer; all ones mean none.
  SetId("bos", tokenizer.bos().value_or(TokenId{-1}), writer);
  SetId("eos", tokenizer.eos().value_or(TokenId{-1}), writer);
  if (tokenizer.unknown()) SetId("unknown", *tokenizer.unknown(), writer);
  if (tokenizer.pad()) SetId("padding", *tokenizer.pad(), writer);
  // End tokens beside EOS have two keys.
  std::vector<std::string_view> names = {"eom", "eot"};
  for (const TokenId id : tokenizer.end_tokens()) {
    if (id == tokenizer.eos() || names.empty()) continue;
    SetId(names.back(), id, writer);
    names.pop_back();
  }
  writer.SetBool("tokenizer.ggml.add_bos_token", tokenizer.adds_bos() && tokenizer.bos());
  writer.SetBool("tokenizer.ggml.add_eos_token", tokenizer.adds_eos() && tokenizer.eos());
}

void Write(const Tokenizer& tokenizer, const Keys& keys, int vocabulary, GgufWriter& writer) {
  writer.SetString("tokenizer.ggml.model", keys.model);
  writer.SetString("tokenizer.ggml.pre", keys.pre);
  std::vector<std::string> own;
  own.reserve(static_cast<size_t>(vocabulary));
  std::vector<std::string_view> pieces;
  std::vector<int32_t> types = keys.types;
  std::vector<float> scores = keys.scores;
  for (int i = 0; i < vocabulary; ++i) {
    std::string_view piece = i < tokenizer.vocab_size() ? tokenizer.Piece(TokenId{i}) : "";
    if (piece.empty()) {
      piece = own.emplace_back(fmt::format("[PAD{}]", i));
    } else if (keys.characters && types[static_cast<size_t>(i)] == kNormal) {
      piece = own.emplace_back(BytesToByteLevel(piece));
    }
    pieces.push_back(piece);
  }
  types.resize(pieces.size(), kUnused);
  writer.SetStrings("tokenizer.ggml.tokens", pieces);
  writer.SetInt32s("tokenizer.ggml.token_type", types);
  if (!scores.empty()) {
    scores.resize(pieces.size(), -1e9F);
    writer.SetFloat32s("tokenizer.ggml.scores", scores);
    writer.SetBool("tokenizer.ggml.add_space_prefix", keys.space_prefix);
  } else {
    const std::vector<std::string_view> merges(keys.merges.begin(), keys.merges.end());
    writer.SetStrings("tokenizer.ggml.merges", merges);
  }
  SetSpecialIds(tokenizer, writer);
  if (!tokenizer.chat_template().empty()) {
    writer.SetString("tokenizer.chat_template", tokenizer.chat_template());
  }
}

// Whether these keys, read back, cut the texts as the tokenizer does.
Result<bool> CutsTheSame(const Tokenizer& tokenizer, const Keys& keys, int vocabulary,
                         const std::vector<TokenizerSample>& samples, const fs::path& scratch) {
  GgufWriter writer;
  Write(tokenizer, keys, vocabulary, writer);
  NIBBLE_TRY(TensorStream stream, writer.Begin(scratch));
  NIBBLE_TRY(const OutputFile file, stream.Complete());  // never committed
  NIBBLE_TRY(const GgufFile read, GgufFile::Open(file.temporary_path()));
  const auto found = LoadGgufTokenizer(read);
  if (!found) return false;
  return !samples.empty() && FindDifference(*found, tokenizer, samples) == nullptr;
}

}  // namespace

Status WriteGgufTokenizer(const fs::path& model, const Tokenizer& tokenizer, int vocabulary,
                          std::string_view sample, const fs::path& scratch, GgufWriter& writer) {
  if (tokenizer.vocab_size() == 0) {
    writer.SetString("tokenizer.ggml.model", "no_vocab");
    return {};
  }
  if (tokenizer.vocab_size() > vocabulary) {
    return BadInput("tokenizer: expected at most the model's {} ids, found {}", vocabulary,
                    tokenizer.vocab_size());
  }
  std::error_code ignored;
  const fs::path folder = fs::is_directory(model, ignored) ? model : model.parent_path();
  const fs::path file = FindTokenizerFile(folder.empty() ? "." : folder);
  if (file.filename() != "tokenizer.json") {
    return BadInput("{}: expected a tokenizer.json to write into a GGUF file", file.string());
  }
  NIBBLE_TRY(Keys keys, KeysFromJson(file, tokenizer));
  std::vector<std::pair<std::string, bool>> candidates;
  if (keys.model == "llama") {
    candidates = {{"default", true}, {"default", false}};
  } else {
    // A small vocabulary does not tell them apart: the usual ones first.
    candidates = {{"gpt-2", false}, {"llama-bpe", false}, {"qwen2", false}};
    for (const PreType& type : PreTypes()) candidates.emplace_back(std::string(type.name), false);
  }
  const std::vector<TokenizerSample> samples =
      TokenizerSamples(tokenizer, sample, !keys.characters);
  for (const auto& [pre, prefix] : candidates) {
    keys.pre = pre;
    keys.space_prefix = prefix;
    NIBBLE_TRY(const bool same, CutsTheSame(tokenizer, keys, vocabulary, samples, scratch));
    if (!same) continue;
    Write(tokenizer, keys, vocabulary, writer);
    return {};
  }
  return BadInput("{}: no tokenizer that GGUF has keys for cuts a text as this one does",
                  file.string());
}

}  // namespace nibble
