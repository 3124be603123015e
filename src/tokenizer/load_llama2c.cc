#include <cmath>
#include <cstring>

#include "tokenizer/hf_json.h"
#include "tokenizer/load_parts.h"
#include "tokenizer/rank_order.h"

namespace nibble {
namespace {

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  bool AtEnd() const { return pos_ == bytes_.size(); }

  template <class T>
  Result<T> Number() {
    if (bytes_.size() - pos_ < sizeof(T)) {
      return BadInput("the file ends inside a number at byte {}", pos_);
    }
    T value;
    std::memcpy(&value, bytes_.data() + pos_, sizeof value);
    pos_ += sizeof value;
    return value;
  }
  Result<std::string_view> Text(int32_t size) {
    if (size <= 0 || static_cast<size_t>(size) > bytes_.size() - pos_) {
      return BadInput("byte {}: a token of {} bytes, but {} are left", pos_, size,
                      bytes_.size() - pos_);
    }
    const std::string_view text = bytes_.substr(pos_, static_cast<size_t>(size));
    pos_ += text.size();
    return text;
  }

 private:
  std::string_view bytes_;
  size_t pos_ = 0;
};

// Ids 0 to 2 are <unk>, <s> and </s>, 3 to 258 the bytes.
constexpr int kFirstByte = 3;
constexpr int kFirstPiece = kFirstByte + 256;

}  // namespace

Result<TokenizerParts> Llama2cParts(std::string_view bytes) {
  Reader reader(bytes);
  NIBBLE_TRY(const int32_t longest, reader.Number<int32_t>());
  if (longest <= 0 || longest > static_cast<int32_t>(Vocabulary::kMaxTokenBytes)) {
    return BadInput("the longest token has {} bytes: not a llama2.c tokenizer", longest);
  }
  TokenizerParts parts;
  RankBpeOptions options;
  TokenIndex index;
  std::vector<float> scores;
  while (!reader.AtEnd()) {
    NIBBLE_TRY(const float score, reader.Number<float>());
    NIBBLE_TRY(const int32_t size, reader.Number<int32_t>());
    NIBBLE_TRY(std::string_view piece, reader.Text(size));
    const auto id = static_cast<int>(scores.size());
    if (std::isnan(score)) return BadInput("token {}: the score is not a number", id);
    scores.push_back(score);
    TokenKind kind = TokenKind::kNormal;
    if (id == 0) kind = TokenKind::kUnknown;
    if (id == 1 || id == 2) {
      kind = TokenKind::kControl;
      piece = id == 1 ? "<s>" : "</s>";  // the file has newlines around them
      parts.added.push_back({.content = std::string(piece), .id = TokenId{id}, .special = true});
    }
    const int byte = id >= kFirstByte && id < kFirstPiece ? ByteOfToken(piece) : -1;
    if (byte >= 0) {
      kind = TokenKind::kByte;
      options.unknown.byte_tokens[static_cast<size_t>(byte)] = id;
    }
    NIBBLE_RETURN_IF_ERROR(parts.vocabulary.Set(id, piece, kind));
    parts.bytes.push_back(byte >= 0 ? std::string(1, static_cast<char>(byte)) : std::string(piece));
    if (kind == TokenKind::kNormal) index.Insert(piece, id);
  }
  if (scores.size() < kFirstPiece) {
    return BadInput("{} tokens: expected at least {}", scores.size(), kFirstPiece);
  }
  options.ranks = RanksByScore(scores);
  options.unknown.byte_fallback = true;
  options.unknown.unknown = TokenId{0};
  parts.unknown = TokenId{0};
  parts.bos = TokenId{1};
  parts.eos = TokenId{2};
  parts.prefix.push_back(*parts.bos);
  parts.normalizers.push_back(MakePrepend(" "));
  parts.drops_leading_space = true;
  parts.model = MakeRankBpe(std::move(options), std::move(index));
  parts.description = "llama2.c BPE";
  hf::FinishParts(parts);
  return parts;
}

}  // namespace nibble
