#include <algorithm>
#include <cctype>
#include <cmath>
#include <new>

#include "base/utf8.h"
#include "container/gguf.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/hf_json.h"
#include "tokenizer/load.h"
#include "tokenizer/parts.h"
#include "tokenizer/pre_types.h"
#include "tokenizer/rank_order.h"
#include "tokenizer/unicode.h"
#include "tokenizer/unigram.h"
#include "tokenizer/word_models.h"

namespace nibble {
namespace {

constexpr std::string_view kSpace = hf::kMetaspaceChar;

bool IsPunctuationMark(char32_t c) { return IsAsciiPunctuation(c) || IsUnicodePunctuation(c); }

class GgufLoader {
 public:
  explicit GgufLoader(const GgufFile& file) : file_(file) {}

  Result<TokenizerParts> Load() {
    NIBBLE_TRY(const std::string_view model, file_.GetString("tokenizer.ggml.model"));
    if (model == "no_vocab" || model == "none") return NoVocabulary();
    NIBBLE_RETURN_IF_ERROR(ReadTokens());
    NIBBLE_TRY(const std::string_view pre, file_.GetStringOr("tokenizer.ggml.pre", "default"));
    if (model == "llama") {
      NIBBLE_RETURN_IF_ERROR(BuildSentencePieceBpe());
    } else if (model == "gpt2") {
      NIBBLE_RETURN_IF_ERROR(BuildBpe(pre));
    } else if (model == "gemma4") {
      NIBBLE_RETURN_IF_ERROR(BuildBpe("gemma4"));
    } else if (model == "bert") {
      NIBBLE_RETURN_IF_ERROR(BuildWordPiece());
    } else if (model == "t5") {
      NIBBLE_RETURN_IF_ERROR(BuildUnigram());
    } else {
      return BadInput(
          "tokenizer.ggml.model: '{}' is not supported (llama, gpt2, gemma4, bert, t5, no_vocab)",
          model);
    }
    NIBBLE_RETURN_IF_ERROR(ReadSpecialTokens());
    AddAddedTokens();
    NIBBLE_TRY(const std::string_view chat, file_.GetStringOr("tokenizer.chat_template", ""));
    parts_.chat_template = chat;
    AddEndTokensByText(parts_);
    parts_.description += fmt::format(", {} tokens", parts_.vocabulary.size());
    return std::move(parts_);
  }

 private:
  Result<TokenizerParts> NoVocabulary() {
    NIBBLE_TRY(const std::string_view architecture, file_.GetStringOr("general.architecture", ""));
    NIBBLE_TRY(const int64_t size, file_.GetIntOr(std::string(architecture) + ".vocab_size", 0));
    if (size > 0) NIBBLE_RETURN_IF_ERROR(parts_.vocabulary.Set(size - 1, "", TokenKind::kUnused));
    parts_.description = fmt::format("none, {} ids", size);
    return std::move(parts_);
  }

  Status ReadTokens() {
    NIBBLE_TRY(tokens_, file_.GetStrings("tokenizer.ggml.tokens"));
    if (tokens_.empty()) return BadInput("tokenizer.ggml.tokens is empty");
    std::vector<int64_t> kinds;
    if (file_.Has("tokenizer.ggml.token_type")) {
      NIBBLE_TRY(kinds, file_.GetInts("tokenizer.ggml.token_type"));
      NIBBLE_RETURN_IF_ERROR(CheckCount("tokenizer.ggml.token_type", kinds.size()));
    }
    if (file_.Has("tokenizer.ggml.scores")) {
      NIBBLE_TRY(scores_, file_.GetFloats("tokenizer.ggml.scores"));
      NIBBLE_RETURN_IF_ERROR(CheckCount("tokenizer.ggml.scores", scores_.size()));
      for (size_t i = 0; i < tokens_.size(); ++i) {
        if (std::isnan(scores_[i])) {
          return BadInput("tokenizer.ggml.scores[{}] is not a number", i);
        }
      }
    }
    TokenIndex seen;
    seen.Reserve(tokens_.size(), 0);
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const int64_t type = kinds.empty() ? 1 : kinds[i];
      const TokenKind kind = type >= 1 && type <= 6 ? kKinds[type - 1] : TokenKind::kNormal;
      // An empty token can never come out of a text; llama.cpp gives it a name.
      std::string named;
      std::string_view piece = tokens_[i];
      if (piece.empty()) piece = named = fmt::format("[EMPTY_{}]", i);
      NIBBLE_RETURN_IF_ERROR(parts_.vocabulary.Set(static_cast<int64_t>(i), piece, kind));
      if (!seen.Insert(piece, static_cast<int32_t>(i))) {
        return BadInput("tokenizer.ggml.tokens[{}]: '{}' is there already as {}", i,
                        ReplaceInvalidUtf8(piece.substr(0, 80)), seen.Find(piece));
      }
    }
    by_piece_ = std::move(seen);
    return {};
  }

  Status CheckCount(std::string_view key, size_t count) const {
    if (count >= tokens_.size()) return {};
    return BadInput("{}: {} entries for {} tokens", key, count, tokens_.size());
  }

  // Raw bytes of a SentencePiece spelling.
  std::string SpmBytes(TokenId id) const {
    const std::string_view piece = parts_.vocabulary.Piece(id);
    switch (parts_.vocabulary.Kind(id)) {
      case TokenKind::kNormal:
      case TokenKind::kUnused:
        return UnescapeSpaces(piece);
      case TokenKind::kByte:
        if (const int byte = ByteOfToken(piece); byte >= 0) {
          return std::string(1, static_cast<char>(byte));
        }
        return std::string(piece);
      default:
        return std::string(piece);
    }
  }

  Status BuildSentencePieceBpe() {
    NIBBLE_TRY(const bool prefix, file_.GetBoolOr("tokenizer.ggml.add_space_prefix", true));
    if (scores_.empty()) return BadInput("tokenizer.ggml.scores is missing");
    RankBpeOptions options;
    scores_.resize(tokens_.size());
    options.ranks = RanksByScore(scores_);
    options.unknown.byte_fallback = true;
    hf::FillByteTokens(by_piece_, options.unknown);
    defaults_ = {.bos = 1, .eos = 2, .unknown = 0, .add_bos = true};
    NIBBLE_RETURN_IF_ERROR(ReadUnknown(options.unknown));
    for (int i = 0; i < parts_.vocabulary.size(); ++i) parts_.bytes.push_back(SpmBytes(TokenId{i}));
    if (prefix) parts_.normalizers.push_back(MakePrepend(" "));
    parts_.normalizers.push_back(MakeReplaceText(" ", std::string(kSpace)));
    parts_.drops_leading_space = prefix;
    parts_.model = MakeRankBpe(std::move(options), hf::PieceIndex(parts_.vocabulary));
    parts_.description = "SentencePiece BPE";
    return {};
  }

  Status ReadUnknown(UnknownRule& rule) {
    NIBBLE_TRY(const int64_t id,
               file_.GetIntOr("tokenizer.ggml.unknown_token_id", defaults_.unknown));
    if (parts_.vocabulary.Has(id)) parts_.unknown = TokenId{static_cast<int32_t>(id)};
    rule.unknown = parts_.unknown;
    return {};
  }

  Status BuildBpe(std::string_view pre) {
    const PreType* type = FindPreType(pre);
    if (type == nullptr) {
      std::string known;
      for (const PreType& t : PreTypes())
        known += (known.empty() ? "" : ", ") + std::string(t.name);
      return BadInput("tokenizer.ggml.pre: '{}' is not known (known: {})", pre, known);
    }
    defaults_ = {.bos = 11, .eos = 11, .add_bos = type->add_bos, .add_sep = type->add_sep};
    for (const std::string_view expression : type->expressions) {
      if (expression.empty()) continue;
      NIBBLE_TRY(auto step, MakeIsolatedSplit(expression));
      parts_.pretokenizers.push_back(std::move(step));
    }
    if (type->name == "whitespace") {
      parts_.pretokenizers.push_back(MakeCharSplit(IsUnicodeWhitespace, SplitBehavior::kRemoved));
    }
    if (type->escape_spaces) {
      parts_.normalizers.push_back(MakeReplaceText(" ", std::string(kSpace)));
    }
    for (int i = 0; i < parts_.vocabulary.size(); ++i) {
      parts_.bytes.push_back(BpeBytes(TokenId{i}, *type));
    }
    parts_.description =
        fmt::format("{} BPE, pre-tokenizer {}", type->characters ? "character" : "byte-level", pre);
    if (pre == "kimi-k2" && !file_.Has("tokenizer.ggml.merges")) return BuildRankedBpe();
    return BuildMergedBpe(*type);
  }

  std::string BpeBytes(TokenId id, const PreType& type) const {
    const std::string_view piece = parts_.vocabulary.Piece(id);
    const TokenKind kind = parts_.vocabulary.Kind(id);
    if (kind == TokenKind::kByte) {
      if (const int byte = ByteOfToken(piece); byte >= 0) return {static_cast<char>(byte)};
    }
    if (kind != TokenKind::kNormal && kind != TokenKind::kUnused && kind != TokenKind::kByte) {
      return std::string(piece);
    }
    if (type.escape_spaces) return UnescapeSpaces(piece);
    if (type.characters || !IsValidUtf8(piece)) return std::string(piece);
    return ByteLevelToBytes(piece).value_or(std::string(piece));
  }

  Status BuildMergedBpe(const PreType& type) {
    NIBBLE_TRY(const auto lines, file_.GetStrings("tokenizer.ggml.merges"));
    std::vector<hf::MergeText> merges;
    merges.reserve(lines.size());
    for (const std::string_view line : lines) {
      // A spelling may begin with a space but holds no other.
      const size_t space = line.find(' ', 1);
      if (space == std::string_view::npos || space + 1 == line.size()) {
        return BadInput(
            "tokenizer.ggml.merges[{}]: expected two texts with a space between, "
            "found '{}'",
            merges.size(), ReplaceInvalidUtf8(line.substr(0, 80)));
      }
      merges.push_back({line.substr(0, space), line.substr(space + 1)});
    }
    auto table = hf::BuildMerges(merges, by_piece_, "");
    if (!table) return Within("tokenizer.ggml", table.error());
    BpeOptions options;
    options.bytes = !type.characters;
    options.whole_piece = type.whole_piece;
    options.unknown.byte_fallback = type.characters;
    hf::FillByteTokens(by_piece_, options.unknown);
    TokenIndex index =
        type.characters ? hf::PieceIndex(parts_.vocabulary) : hf::ByteIndex(parts_.vocabulary);
    parts_.model = MakeMergeBpe(std::move(options), std::move(index), *std::move(table));
    return {};
  }

  // Without merges: ranks are ids, as in tiktoken.
  Status BuildRankedBpe() {
    RankBpeOptions options;
    options.bytes = true;
    options.whole_piece = true;
    options.ranks.resize(tokens_.size());
    for (size_t i = 0; i < tokens_.size(); ++i) options.ranks[i] = static_cast<uint32_t>(i);
    parts_.model = MakeRankBpe(std::move(options), hf::ByteIndex(parts_.vocabulary));
    return {};
  }

  Status BuildWordPiece() {
    defaults_ = {.bos = 101, .unknown = 100, .separator = 102, .add_bos = true, .add_sep = true};
    UnknownRule rule;
    NIBBLE_RETURN_IF_ERROR(ReadUnknown(rule));
    BertOptions bert;
    NIBBLE_TRY(bert.lowercase, file_.GetBoolOr("tokenizer.ggml.normalizer.lowercase", true));
    NIBBLE_TRY(bert.strip_accents,
               file_.GetBoolOr("tokenizer.ggml.normalizer.strip_accents", bert.lowercase));
    parts_.normalizers.push_back(MakeBert(bert));
    parts_.pretokenizers.push_back(MakeCharSplit(IsUnicodeWhitespace, SplitBehavior::kRemoved));
    parts_.pretokenizers.push_back(MakeCharSplit(IsPunctuationMark, SplitBehavior::kIsolated));
    for (int i = 0; i < parts_.vocabulary.size(); ++i) parts_.bytes.push_back(SpmBytes(TokenId{i}));
    parts_.drops_leading_space = true;
    WordPieceOptions options;
    options.first_prefix = kSpace;
    options.prefix_is_text = true;
    options.unknown = parts_.unknown;
    parts_.model = MakeWordPiece(std::move(options), hf::PieceIndex(parts_.vocabulary));
    parts_.description = "WordPiece";
    return {};
  }

  Status BuildUnigram() {
    defaults_ = {.eos = 1, .unknown = 2, .add_eos = true};
    if (scores_.empty()) return BadInput("tokenizer.ggml.scores is missing");
    UnigramOptions options;
    NIBBLE_RETURN_IF_ERROR(ReadUnknown(options.unknown));
    options.unknown.fuse = true;
    options.min_score = std::numeric_limits<float>::max();
    SentencePieceOptions normalizer;
    NIBBLE_TRY(normalizer.add_dummy_prefix,
               file_.GetBoolOr("tokenizer.ggml.add_space_prefix", false));
    NIBBLE_TRY(normalizer.remove_extra_whitespaces,
               file_.GetBoolOr("tokenizer.ggml.remove_extra_whitespaces", false));
    for (int i = 0; i < parts_.vocabulary.size(); ++i) {
      const TokenKind kind = parts_.vocabulary.Kind(TokenId{i});
      const bool text = kind == TokenKind::kNormal || kind == TokenKind::kUserDefined ||
                        kind == TokenKind::kUnused;
      const std::string_view piece = parts_.vocabulary.Piece(TokenId{i});
      options.pieces.emplace_back(text ? piece : std::string_view());
      const double score = scores_[static_cast<size_t>(i)];
      options.scores.push_back(kind == TokenKind::kUserDefined ? 0.0 : score);
      if (kind == TokenKind::kNormal) options.min_score = std::min(options.min_score, score);
      if (kind == TokenKind::kUserDefined) normalizer.user_defined.emplace_back(piece);
      parts_.bytes.push_back(SpmBytes(TokenId{i}));
    }
    NIBBLE_TRY(Charsmap charsmap, ReadCharsmap());
    parts_.drops_leading_space = normalizer.add_dummy_prefix;
    parts_.normalizers.push_back(MakeSentencePiece(std::move(charsmap), std::move(normalizer)));
    parts_.model = MakeUnigram(std::move(options));
    parts_.description = "SentencePiece unigram";
    return {};
  }

  Result<Charsmap> ReadCharsmap() const {
    const GgufEntry* entry = file_.Find("tokenizer.ggml.precompiled_charsmap");
    if (entry == nullptr) return Charsmap();
    const bool bytes = entry->type == GgufType::kArray && (entry->element_type == GgufType::kInt8 ||
                                                           entry->element_type == GgufType::kUint8);
    if (!bytes) {
      return BadInput("tokenizer.ggml.precompiled_charsmap: expected an array of bytes, found {}",
                      entry->TypeString());
    }
    return Charsmap::Parse(
        {reinterpret_cast<const char*>(entry->bytes.data()), entry->bytes.size()});
  }

  // A special id: the key's, else the default where the vocabulary has it.
  Result<std::optional<TokenId>> SpecialId(std::string_view key, int64_t fallback) const {
    const std::string full = fmt::format("tokenizer.ggml.{}_token_id", key);
    if (!file_.Has(full)) {
      if (!parts_.vocabulary.Has(fallback)) return std::nullopt;
      return TokenId{static_cast<int32_t>(fallback)};
    }
    NIBBLE_TRY(const int64_t id, file_.GetInt(full));
    if (id == -1 || id == int64_t{UINT32_MAX}) return std::nullopt;  // how some files say "none"
    NIBBLE_TRY(const TokenId token, CheckedId(parts_.vocabulary, id, full));
    return token;
  }

  Status ReadSpecialTokens() {
    NIBBLE_TRY(parts_.bos, SpecialId("bos", defaults_.bos));
    NIBBLE_TRY(parts_.eos, SpecialId("eos", defaults_.eos));
    NIBBLE_TRY(parts_.pad, SpecialId("padding", -1));
    NIBBLE_TRY(const auto separator, SpecialId("seperator", defaults_.separator));
    for (const std::string_view key : {"eot", "eom"}) {
      NIBBLE_TRY(const auto id, SpecialId(key, -1));
      if (id) parts_.end_tokens.push_back(*id);
    }
    NIBBLE_TRY(const bool add_bos,
               file_.GetBoolOr("tokenizer.ggml.add_bos_token", defaults_.add_bos));
    NIBBLE_TRY(const bool add_eos,
               file_.GetBoolOr("tokenizer.ggml.add_eos_token", defaults_.add_eos));
    NIBBLE_TRY(const bool add_sep,
               file_.GetBoolOr("tokenizer.ggml.add_sep_token", defaults_.add_sep));
    if (add_bos && !parts_.bos) {
      return BadInput("tokenizer.ggml.add_bos_token is true, but there is no bos_token_id");
    }
    if (add_eos && !parts_.eos) {
      return BadInput("tokenizer.ggml.add_eos_token is true, but there is no eos_token_id");
    }
    if (add_bos) parts_.prefix.push_back(*parts_.bos);
    if (add_sep && separator) {
      parts_.suffix.push_back(*separator);
    } else if (add_eos) {
      parts_.suffix.push_back(*parts_.eos);
    }
    return {};
  }

  // What is found in the text before the model sees it. The white space that Phi-3's tokens take
  // along is in no key, so llama.cpp goes by the model's name, and so must this.
  void AddAddedTokens() {
    std::string name;
    if (const auto value = file_.GetStringOr("general.name", "")) name = *value;
    std::ranges::transform(name, name.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const bool phi3 =
        name.find("phi-3") != std::string::npos || name.find("phi3") != std::string::npos;
    for (int i = 0; i < parts_.vocabulary.size(); ++i) {
      const TokenId id{i};
      const TokenKind kind = parts_.vocabulary.Kind(id);
      const std::string_view piece = parts_.vocabulary.Piece(id);
      const bool control = kind == TokenKind::kControl || kind == TokenKind::kUnknown;
      if (!control && kind != TokenKind::kUserDefined) continue;
      if (piece.size() > 1024) continue;  // no text of a mark; matching must stay linear
      const bool plain = piece == "<unk>" || piece == "<s>" || piece == "<|endoftext|>";
      parts_.added.push_back({.content = std::string(piece),
                              .id = id,
                              .lstrip = piece == "<mask>" || piece == "[MASK]",
                              .rstrip = phi3 && !plain,
                              .special = control});
    }
  }

  static constexpr TokenKind kKinds[] = {TokenKind::kNormal,  TokenKind::kUnknown,
                                         TokenKind::kControl, TokenKind::kUserDefined,
                                         TokenKind::kUnused,  TokenKind::kByte};
  struct Defaults {
    int64_t bos = -1, eos = -1, unknown = -1, separator = -1;
    bool add_bos = false, add_eos = false, add_sep = false;
  };

  const GgufFile& file_;
  std::vector<std::string_view> tokens_;
  std::vector<float> scores_;
  TokenIndex by_piece_;
  Defaults defaults_;
  TokenizerParts parts_;
};

}  // namespace

Result<Tokenizer> LoadGgufTokenizer(const GgufFile& file) {
  try {
    NIBBLE_TRY(TokenizerParts parts, GgufLoader(file).Load());
    return Tokenizer::Make(std::move(parts));
  } catch (const std::bad_alloc&) {
    return Fail(ErrorKind::kNoRoom, "no memory for the tokenizer");
  }
}

}  // namespace nibble
