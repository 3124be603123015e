#include <algorithm>

#include "base/utf8.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/hf_json.h"
#include "tokenizer/unigram.h"
#include "tokenizer/word_models.h"

namespace nibble::hf {
namespace {

// Older files have no model type.
Result<std::string_view> ModelType(JsonValue model) {
  NIBBLE_TRY(const std::string_view type, model.GetStringOr("type", ""));
  if (!type.empty()) return type;
  if (model.Find("merges")) return std::string_view("BPE");
  const auto vocabulary = model.Find("vocab");
  if (vocabulary && vocabulary->is_array()) return std::string_view("Unigram");
  return std::string_view(model.Find("max_input_chars_per_word") ? "WordPiece" : "WordLevel");
}

// The id of a named token such as unk_token.
Result<std::optional<TokenId>> NamedToken(JsonValue model, std::string_view key,
                                          const TokenIndex& by_piece) {
  NIBBLE_TRY(const std::string_view text, model.GetStringOr(key, ""));
  if (text.empty()) return std::nullopt;
  const int32_t id = by_piece.Find(text);
  if (id < 0) return BadInput("model.{}: '{}' is not in the vocabulary", key, text);
  return TokenId{id};
}

Status BuildBpe(JsonValue model, bool bytes, TokenizerParts& parts) {
  const TokenIndex by_piece = PieceIndex(parts.vocabulary);
  BpeOptions options;
  options.bytes = bytes;
  NIBBLE_TRY(options.whole_piece, model.GetBoolOr("ignore_merges", false));
  NIBBLE_TRY(options.unknown.fuse, model.GetBoolOr("fuse_unk", false));
  NIBBLE_TRY(options.unknown.byte_fallback, model.GetBoolOr("byte_fallback", false));
  NIBBLE_TRY(options.unknown.unknown, NamedToken(model, "unk_token", by_piece));
  NIBBLE_TRY(const std::string_view prefix, model.GetStringOr("continuing_subword_prefix", ""));
  NIBBLE_TRY(const std::string_view suffix, model.GetStringOr("end_of_word_suffix", ""));
  options.continuing_prefix = prefix;
  options.end_of_word_suffix = suffix;
  FillByteTokens(by_piece, options.unknown);
  if (options.unknown.unknown) parts.unknown = options.unknown.unknown;

  std::vector<MergeText> merges;
  NIBBLE_TRY(const JsonValue merges_json, model.Get("merges"));
  NIBBLE_TRY(const JsonArray list, merges_json.AsArray());
  merges.reserve(list.size());
  for (const JsonValue item : list) {
    if (item.is_string()) {
      NIBBLE_TRY(const std::string_view line, item.AsString());
      NIBBLE_TRY(const MergeText merge, SplitMerge(line, merges.size()));
      merges.push_back(merge);
      continue;
    }
    NIBBLE_TRY(const JsonArray pair, item.AsArray());
    if (pair.size() != 2) {
      return BadInput("merges[{}]: expected two texts, found {}", merges.size(), pair.size());
    }
    auto it = pair.begin();
    NIBBLE_TRY(const std::string_view left, (*it).AsString());
    ++it;
    NIBBLE_TRY(const std::string_view right, (*it).AsString());
    merges.push_back({left, right});
  }
  NIBBLE_TRY(MergeTable table, BuildMerges(merges, by_piece, prefix));
  TokenIndex index = bytes ? ByteIndex(parts.vocabulary) : PieceIndex(parts.vocabulary);
  parts.model = MakeMergeBpe(std::move(options), std::move(index), std::move(table));
  parts.description = bytes ? "byte-level BPE" : "BPE";
  return {};
}

Status BuildUnigram(JsonValue model, TokenizerParts& parts) {
  UnigramOptions options;
  NIBBLE_TRY(const JsonValue list_json, model.Get("vocab"));
  NIBBLE_TRY(const JsonArray list, list_json.AsArray());
  options.min_score = std::numeric_limits<double>::infinity();
  for (const JsonValue item : list) {
    NIBBLE_TRY(const JsonArray pair, item.AsArray());
    auto it = pair.begin();
    NIBBLE_TRY(const std::string_view piece, (*it).AsString());
    ++it;
    NIBBLE_TRY(const double score, (*it).AsDouble());
    options.pieces.emplace_back(piece);
    options.scores.push_back(score);
    options.min_score = std::min(options.min_score, score);
  }
  if (options.pieces.empty()) return BadInput("model.vocab is empty");
  NIBBLE_TRY(const int64_t unknown, model.GetIntOr("unk_id", -1));
  if (unknown >= 0) {
    NIBBLE_TRY(options.unknown.unknown, CheckedId(parts.vocabulary, unknown, "model.unk_id"));
    parts.unknown = options.unknown.unknown;
  }
  options.unknown.fuse = true;
  NIBBLE_TRY(options.unknown.byte_fallback, model.GetBoolOr("byte_fallback", false));
  FillByteTokens(PieceIndex(parts.vocabulary), options.unknown);
  parts.model = MakeUnigram(std::move(options));
  parts.description = "unigram";
  return {};
}

Status BuildWordPiece(JsonValue model, TokenizerParts& parts) {
  TokenIndex index = PieceIndex(parts.vocabulary);
  WordPieceOptions options;
  NIBBLE_TRY(options.unknown, NamedToken(model, "unk_token", index));
  NIBBLE_TRY(const std::string_view prefix, model.GetStringOr("continuing_subword_prefix", "##"));
  NIBBLE_TRY(const int64_t longest, model.GetIntOr("max_input_chars_per_word", 100));
  options.continuing_prefix = prefix;
  options.max_characters = static_cast<size_t>(std::max<int64_t>(longest, 0));
  parts.unknown = options.unknown;
  parts.model = MakeWordPiece(std::move(options), std::move(index));
  parts.description = "WordPiece";
  return {};
}

Status BuildWordLevel(JsonValue model, TokenizerParts& parts) {
  TokenIndex index = PieceIndex(parts.vocabulary);
  // Unlike elsewhere an unk_token that is not in the vocabulary is common, and harmless until it
  // is needed.
  NIBBLE_TRY(const std::string_view text, model.GetStringOr("unk_token", ""));
  if (const int32_t id = index.Find(text); id >= 0) parts.unknown = TokenId{id};
  parts.model = MakeWordLevel(parts.unknown, std::move(index));
  parts.description = "word level";
  return {};
}

}  // namespace

TokenIndex PieceIndex(const Vocabulary& vocabulary) {
  TokenIndex index;
  index.Reserve(static_cast<size_t>(vocabulary.size()), 0);
  for (int i = 0; i < vocabulary.size(); ++i) {
    if (vocabulary.IsSet(TokenId{i})) index.Insert(vocabulary.Piece(TokenId{i}), i);
  }
  return index;
}

TokenIndex ByteIndex(const Vocabulary& vocabulary) {
  TokenIndex index;
  index.Reserve(static_cast<size_t>(vocabulary.size()), 0);
  for (int i = 0; i < vocabulary.size(); ++i) {
    const TokenId id{i};
    if (!vocabulary.IsSet(id) || !IsValidUtf8(vocabulary.Piece(id))) continue;
    if (const auto bytes = ByteLevelToBytes(vocabulary.Piece(id))) index.Insert(*bytes, i);
  }
  return index;
}

bool FillByteTokens(const TokenIndex& by_piece, UnknownRule& rule) {
  bool all = true;
  for (int b = 0; b < 256; ++b) {
    const int32_t id = by_piece.Find(fmt::format("<0x{:02X}>", b));
    rule.byte_tokens[static_cast<size_t>(b)] = id;
    all = all && id >= 0;
  }
  return all;
}

Result<MergeText> SplitMerge(std::string_view line, size_t number) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || space == 0 || space + 1 == line.size() ||
      line.find(' ', space + 1) != std::string_view::npos) {
    return BadInput("merges[{}]: expected two texts with one space between, found '{}'", number,
                    ReplaceInvalidUtf8(line.substr(0, 80)));
  }
  return MergeText{line.substr(0, space), line.substr(space + 1)};
}

Result<MergeTable> BuildMerges(std::span<const MergeText> merges, const TokenIndex& by_piece,
                               std::string_view continuing_prefix) {
  std::vector<BpeMerge> out;
  out.reserve(merges.size());
  std::string joined;
  for (size_t i = 0; i < merges.size(); ++i) {
    const auto& [left, right] = merges[i];
    joined = left;
    joined += !continuing_prefix.empty() && right.starts_with(continuing_prefix)
                  ? right.substr(continuing_prefix.size())
                  : right;
    const BpeMerge merge = {by_piece.Find(left), by_piece.Find(right), by_piece.Find(joined)};
    if (merge.left < 0 || merge.right < 0 || merge.merged < 0) {
      const std::string_view missing = merge.left < 0    ? left
                                       : merge.right < 0 ? right
                                                         : std::string_view(joined);
      return BadInput("merges[{}] ('{}' + '{}'): '{}' is not in the vocabulary", i,
                      ReplaceInvalidUtf8(left.substr(0, 80)),
                      ReplaceInvalidUtf8(right.substr(0, 80)),
                      ReplaceInvalidUtf8(missing.substr(0, 80)));
    }
    if (merge.merged == merge.left || merge.merged == merge.right) {
      return BadInput("merges[{}] ('{}' + '{}') gives one of its own parts: a cycle", i, left,
                      right);
    }
    out.push_back(merge);
  }
  return MergeTable(out);
}

Status ParseVocabulary(JsonValue model, TokenizerParts& parts) {
  NIBBLE_TRY(const JsonValue vocabulary, model.Get("vocab"));
  const auto add = [&](std::string_view piece, int64_t id) -> Status {
    if (parts.vocabulary.Has(id) && parts.vocabulary.IsSet(TokenId{static_cast<int32_t>(id)})) {
      return BadInput("model.vocab: '{}' and '{}' have the same id {}",
                      parts.vocabulary.Piece(TokenId{static_cast<int32_t>(id)}),
                      piece.substr(0, 80), id);
    }
    const TokenKind kind = ByteOfToken(piece) >= 0 ? TokenKind::kByte : TokenKind::kNormal;
    return parts.vocabulary.Set(id, piece, kind);
  };
  if (vocabulary.is_array()) {
    NIBBLE_TRY(const JsonArray list, vocabulary.AsArray());
    int64_t id = 0;
    for (const JsonValue item : list) {
      NIBBLE_TRY(const JsonArray pair, item.AsArray());
      if (pair.size() != 2) return BadInput("model.vocab[{}]: expected [piece, score]", id);
      NIBBLE_TRY(const std::string_view piece, (*pair.begin()).AsString());
      NIBBLE_RETURN_IF_ERROR(add(piece, id++));
    }
    return {};
  }
  NIBBLE_TRY(const JsonObject object, vocabulary.AsObject());
  for (const auto [piece, value] : object) {
    NIBBLE_TRY(const int64_t id, value.AsInt());
    NIBBLE_RETURN_IF_ERROR(add(piece, id));
  }
  return {};
}

Status BuildModel(JsonValue model, bool bytes, TokenizerParts& parts) {
  NIBBLE_TRY(const std::string_view type, ModelType(model));
  if (type == "BPE") return BuildBpe(model, bytes, parts);
  if (type == "Unigram") return BuildUnigram(model, parts);
  if (type == "WordPiece") return BuildWordPiece(model, parts);
  if (type == "WordLevel") return BuildWordLevel(model, parts);
  return BadInput("model type '{}' is not known (BPE, Unigram, WordPiece, WordLevel)", type);
}

}  // namespace nibble::hf
