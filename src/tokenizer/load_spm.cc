// SentencePiece's ModelProto, https://github.com/google/sentencepiece (sentencepiece_model.proto):
// the fields that encoding needs.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/utf8.h"
#include "tokenizer/hf_json.h"
#include "tokenizer/load_parts.h"
#include "tokenizer/protobuf.h"
#include "tokenizer/rank_order.h"
#include "tokenizer/unigram.h"
#include "tokenizer/word_models.h"

namespace nibble {
namespace {

enum class SpmModel : uint64_t { kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4 };

struct SpmFile {
  std::vector<float> scores;
  std::vector<TokenKind> kinds;
  uint64_t model_type = 1;
  bool byte_fallback = false;
  bool whitespace_as_suffix = false;
  int64_t unk = 0, bos = 1, eos = 2, pad = -1;
  std::string_view charsmap;
  std::string_view unknown_surface = " \xE2\x81\x87 ";  // what unknown text decodes to
  SentencePieceOptions normalizer;
};

Result<TokenKind> KindOf(uint64_t type, size_t id) {
  switch (type) {
    case 1:
      return TokenKind::kNormal;
    case 2:
      return TokenKind::kUnknown;
    case 3:
      return TokenKind::kControl;
    case 4:
      return TokenKind::kUserDefined;
    case 5:
      return TokenKind::kUnused;
    case 6:
      return TokenKind::kByte;
    default:
      return BadInput("piece {}: type {} is not known", id, type);
  }
}

Status ReadPiece(std::string_view bytes, SpmFile& file, Vocabulary& vocabulary) {
  ProtobufReader reader(bytes);
  std::string_view piece;
  float score = 0;
  uint64_t type = 1;
  while (!reader.AtEnd()) {
    NIBBLE_TRY(const ProtobufField field, reader.Next());
    if (field.number == 1) piece = field.bytes;
    if (field.number == 2) score = field.AsFloat();
    if (field.number == 3) type = field.value;
  }
  const size_t id = file.scores.size();
  NIBBLE_TRY(const TokenKind kind, KindOf(type, id));
  if (piece.empty()) return BadInput("piece {} is empty", id);
  if (!IsValidUtf8(piece)) return BadInput("piece {} is no UTF-8", id);
  if (std::isnan(score)) return BadInput("piece {}: the score is not a number", id);
  file.scores.push_back(score);
  file.kinds.push_back(kind);
  return vocabulary.Set(static_cast<int64_t>(id), piece, kind);
}

Status ReadTrainer(std::string_view bytes, SpmFile& file) {
  ProtobufReader reader(bytes);
  while (!reader.AtEnd()) {
    NIBBLE_TRY(const ProtobufField field, reader.Next());
    switch (field.number) {
      case 3:
        file.model_type = field.value;
        break;
      case 24:
        file.whitespace_as_suffix = field.value != 0;
        break;
      case 35:
        file.byte_fallback = field.value != 0;
        break;
      case 40:
        file.unk = field.AsInt();
        break;
      case 41:
        file.bos = field.AsInt();
        break;
      case 42:
        file.eos = field.AsInt();
        break;
      case 44:
        file.unknown_surface = field.bytes;
        break;
      case 43:
        file.pad = field.AsInt();
        break;
      default:
        break;
    }
  }
  return {};
}

Status ReadNormalizer(std::string_view bytes, SpmFile& file) {
  ProtobufReader reader(bytes);
  while (!reader.AtEnd()) {
    NIBBLE_TRY(const ProtobufField field, reader.Next());
    switch (field.number) {
      case 2:
        file.charsmap = field.bytes;
        break;
      case 3:
        file.normalizer.add_dummy_prefix = field.value != 0;
        break;
      case 4:
        file.normalizer.remove_extra_whitespaces = field.value != 0;
        break;
      case 5:
        file.normalizer.escape_whitespaces = field.value != 0;
        break;
      default:
        break;
    }
  }
  return {};
}

Result<SpmFile> ReadFile(std::string_view bytes, Vocabulary& vocabulary) {
  SpmFile file;
  ProtobufReader reader(bytes);
  while (!reader.AtEnd()) {
    NIBBLE_TRY(const ProtobufField field, reader.Next());
    if (field.number == 1) NIBBLE_RETURN_IF_ERROR(ReadPiece(field.bytes, file, vocabulary));
    if (field.number == 2) NIBBLE_RETURN_IF_ERROR(ReadTrainer(field.bytes, file));
    if (field.number == 3) NIBBLE_RETURN_IF_ERROR(ReadNormalizer(field.bytes, file));
  }
  if (file.scores.empty()) return BadInput("no pieces: not a SentencePiece model");
  return file;
}

// The pieces that encoding can produce from text.
bool IsText(TokenKind kind) {
  return kind == TokenKind::kNormal || kind == TokenKind::kUserDefined ||
         kind == TokenKind::kUnused;
}

Status CheckDuplicates(const Vocabulary& vocabulary) {
  TokenIndex seen;
  for (int i = 0; i < vocabulary.size(); ++i) {
    const std::string_view piece = vocabulary.Piece(TokenId{i});
    if (!seen.Insert(piece, i)) {
      return BadInput("piece {} '{}' is there already as {}", i, piece, seen.Find(piece));
    }
  }
  return {};
}

void BuildBpe(const SpmFile& file, UnknownRule unknown, TokenizerParts& parts) {
  RankBpeOptions options;
  options.unknown = unknown;
  options.ranks = RanksByScore(file.scores);
  TokenIndex index;
  for (int i = 0; i < parts.vocabulary.size(); ++i) {
    const TokenKind kind = file.kinds[static_cast<size_t>(i)];
    const std::string_view piece = parts.vocabulary.Piece(TokenId{i});
    if (kind == TokenKind::kUserDefined) options.frozen.Insert(piece, i);
    if (IsText(kind)) index.Insert(piece, i);
    if (kind == TokenKind::kUnused && options.unused.empty()) {
      options.unused.resize(file.kinds.size());
    }
    if (kind == TokenKind::kUnused) options.unused[static_cast<size_t>(i)] = true;
  }
  parts.model = MakeRankBpe(std::move(options), std::move(index));
  parts.description = "SentencePiece BPE";
}

void BuildUnigram(const SpmFile& file, UnknownRule unknown, TokenizerParts& parts) {
  UnigramOptions options;
  options.unknown = unknown;
  options.single_precision = true;
  options.min_score = std::numeric_limits<float>::max();
  options.max_score = std::numeric_limits<float>::lowest();
  for (int i = 0; i < parts.vocabulary.size(); ++i) {
    const TokenKind kind = file.kinds[static_cast<size_t>(i)];
    const bool used = kind == TokenKind::kNormal || kind == TokenKind::kUserDefined;
    options.pieces.emplace_back(used ? parts.vocabulary.Piece(TokenId{i}) : std::string_view());
    const double score = file.scores[static_cast<size_t>(i)];
    options.scores.push_back(score);
    options.user_defined.push_back(kind == TokenKind::kUserDefined);
    if (kind == TokenKind::kNormal) {
      options.min_score = std::min(options.min_score, score);
      options.max_score = std::max(options.max_score, score);
    }
  }
  parts.model = MakeUnigram(std::move(options));
  parts.description = "SentencePiece unigram";
}

// Word and character models look each piece up.
void BuildLookup(const SpmFile& file, bool words, TokenizerParts& parts) {
  TokenIndex index;
  for (int i = 0; i < parts.vocabulary.size(); ++i) {
    if (IsText(file.kinds[static_cast<size_t>(i)])) {
      index.Insert(parts.vocabulary.Piece(TokenId{i}), i);
    }
  }
  parts.pretokenizers.push_back(
      words ? MakeMetaspace(std::string(hf::kMetaspaceChar), MetaspacePrepend::kNever, true)
            : MakeFixedLength(1));
  parts.model = MakeWordLevel(parts.unknown, std::move(index));
  parts.description = words ? "SentencePiece words" : "SentencePiece characters";
}

// The file's special ids; -1 and ids beyond the pieces mean "none".
std::optional<TokenId> IdOrNone(const Vocabulary& vocabulary, int64_t id) {
  if (!vocabulary.Has(id)) return std::nullopt;
  return TokenId{static_cast<int32_t>(id)};
}

}  // namespace

Result<TokenizerParts> SentencePieceParts(std::string_view bytes,
                                          const hf::TokenizerConfig* config) {
  TokenizerParts parts;
  NIBBLE_TRY(SpmFile file, ReadFile(bytes, parts.vocabulary));
  NIBBLE_RETURN_IF_ERROR(CheckDuplicates(parts.vocabulary));
  NIBBLE_TRY(Charsmap charsmap, Charsmap::Parse(file.charsmap));
  file.normalizer.whitespace_as_suffix = file.whitespace_as_suffix;
  const Vocabulary& vocabulary = parts.vocabulary;
  parts.drops_leading_space = file.normalizer.add_dummy_prefix && !file.whitespace_as_suffix;
  for (int i = 0; i < vocabulary.size(); ++i) {
    const TokenId id{i};
    const std::string_view piece = vocabulary.Piece(id);
    const TokenKind kind = vocabulary.Kind(id);
    if (kind == TokenKind::kUserDefined) file.normalizer.user_defined.emplace_back(piece);
    if (kind == TokenKind::kUnknown) parts.unknown = id;
    if (kind == TokenKind::kControl) {
      parts.added.push_back({.content = std::string(piece), .id = id, .special = true});
    }
    const int byte = kind == TokenKind::kByte ? ByteOfToken(piece) : -1;
    if (byte >= 0) {
      parts.bytes.emplace_back(1, static_cast<char>(byte));
    } else if (kind == TokenKind::kUnknown) {
      parts.bytes.emplace_back(file.unknown_surface);
    } else {
      parts.bytes.push_back(UnescapeSpaces(piece));
    }
  }
  if (!parts.unknown) return BadInput("the model has no unknown piece");
  parts.bos = IdOrNone(vocabulary, file.bos);
  parts.eos = IdOrNone(vocabulary, file.eos);
  parts.pad = IdOrNone(vocabulary, file.pad);
  parts.normalizers.push_back(MakeSentencePiece(std::move(charsmap), file.normalizer));

  UnknownRule unknown;
  unknown.unknown = parts.unknown;
  unknown.fuse = true;
  if (file.byte_fallback) {
    unknown.byte_fallback = hf::FillByteTokens(hf::PieceIndex(vocabulary), unknown);
  }
  switch (static_cast<SpmModel>(file.model_type)) {
    case SpmModel::kUnigram:
      BuildUnigram(file, unknown, parts);
      break;
    case SpmModel::kBpe:
      BuildBpe(file, unknown, parts);
      break;
    case SpmModel::kWord:
      BuildLookup(file, true, parts);
      break;
    case SpmModel::kChar:
      BuildLookup(file, false, parts);
      break;
    default:
      return BadInput(
          "trainer_spec.model_type {} is not known (1 unigram, 2 BPE, 3 words, "
          "4 characters)",
          file.model_type);
  }
  if (config != nullptr) {
    NIBBLE_RETURN_IF_ERROR(hf::ApplyConfig(*config, parts));
    // LlamaTokenizer's default, when the configuration does not say.
    const bool llama = config->tokenizer_class.starts_with("Llama");
    if (!config->add_bos && llama && parts.bos && parts.prefix.empty()) {
      parts.prefix.push_back(*parts.bos);
    }
  }
  hf::FinishParts(parts);
  return parts;
}

}  // namespace nibble
