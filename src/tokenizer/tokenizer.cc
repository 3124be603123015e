#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <new>

#include "base/utf8.h"
#include "tokenizer/parts.h"

namespace nibble {

struct Tokenizer::Impl {
  TokenizerParts parts;
  AddedTokenMatcher raw_matcher, normalized_matcher;
  TokenIndex by_piece;
  bool drops_leading_space = false;
  // The bytes of all ids in one block.
  std::string bytes;
  std::vector<uint64_t> byte_offsets;

  std::string_view BytesOf(TokenId id) const {
    const auto i = static_cast<size_t>(id.value());
    return std::string_view(bytes).substr(byte_offsets[i], byte_offsets[i + 1] - byte_offsets[i]);
  }
  bool Has(TokenId id) const { return parts.vocabulary.Has(id.value()); }

  void FillBytes();
  Result<std::vector<TokenId>> Encode(std::string_view text, const EncodeOptions& options,
                                      bool& cut) const;
  Status EncodePart(std::string_view text, bool at_start, const EncodeOptions& options,
                    TokenModel::Workspace& workspace, std::vector<TokenId>& out, bool& cut) const;
  Result<std::string> Normalize(std::string_view text) const;
};

namespace {

void SortUnique(std::vector<TokenId>& ids) {
  std::ranges::sort(ids);
  const auto rest = std::ranges::unique(ids);
  ids.erase(rest.begin(), rest.end());
}

}  // namespace

void Tokenizer::Impl::FillBytes() {
  const Vocabulary& vocabulary = parts.vocabulary;
  byte_offsets.reserve(static_cast<size_t>(vocabulary.size()) + 1);
  byte_offsets.push_back(0);
  for (int i = 0; i < vocabulary.size(); ++i) {
    const TokenId id{i};
    const TokenKind kind = vocabulary.Kind(id);
    if (static_cast<size_t>(i) < parts.bytes.size()) {
      bytes += parts.bytes[static_cast<size_t>(i)];
    } else if (kind == TokenKind::kControl || kind == TokenKind::kUserDefined ||
               kind == TokenKind::kUnknown) {
      bytes += vocabulary.Piece(id);
    } else {
      std::string token(vocabulary.Piece(id));
      for (const auto& step : parts.decoder) token = step->Middle(std::move(token));
      bytes += token;
    }
    byte_offsets.push_back(bytes.size());
  }
  std::vector<std::string>().swap(parts.bytes);
}

Tokenizer::Tokenizer(TokenizerParts parts) {
  auto impl = std::make_unique<Impl>();
  impl->parts = std::move(parts);
  TokenizerParts& p = impl->parts;
  const Vocabulary& vocabulary = p.vocabulary;
  impl->by_piece.Reserve(static_cast<size_t>(vocabulary.size()), 0);
  for (int i = 0; i < vocabulary.size(); ++i) {
    if (vocabulary.IsSet(TokenId{i})) impl->by_piece.Insert(vocabulary.Piece(TokenId{i}), i);
  }
  impl->drops_leading_space = p.decoder.empty()
                                  ? p.drops_leading_space
                                  : std::ranges::any_of(p.decoder, &DecoderStep::DropsLeadingSpace);
  impl->FillBytes();
  if (p.eos) p.end_tokens.push_back(*p.eos);
  SortUnique(p.end_tokens);
  impl_ = std::move(impl);
}

Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Result<Tokenizer> Tokenizer::Make(TokenizerParts parts) {
  std::vector<AddedToken> raw, normalized;
  for (AddedToken& token : parts.added) {
    (token.normalized ? normalized : raw).push_back(std::move(token));
  }
  parts.added.clear();
  for (AddedToken& token : normalized) {
    // The library looks for the normalised content.
    for (const auto& step : parts.normalizers) {
      NIBBLE_TRY(token.content, step->Apply(ReplaceInvalidUtf8(token.content)));
    }
  }
  NIBBLE_TRY(auto raw_matcher, AddedTokenMatcher::Make(std::move(raw)));
  NIBBLE_TRY(auto normalized_matcher, AddedTokenMatcher::Make(std::move(normalized)));
  Tokenizer tokenizer(std::move(parts));
  tokenizer.impl_->raw_matcher = std::move(raw_matcher);
  tokenizer.impl_->normalized_matcher = std::move(normalized_matcher);
  return tokenizer;
}

Result<std::string> Tokenizer::Impl::Normalize(std::string_view text) const {
  const auto normalize = [&](std::string_view valid) -> Result<std::string> {
    std::string out(valid);
    for (const auto& step : parts.normalizers) {
      NIBBLE_TRY(out, step->Apply(std::move(out)));
    }
    return out;
  };
  if (parts.normalizers.empty()) return std::string(text);
  if (IsValidUtf8(text)) return normalize(text);
  // Byte-level models keep ill-formed bytes; what lies between them is normalised.
  std::string out;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    if (const size_t n = Utf8CharLength(text.substr(i))) {
      i += n;
      continue;
    }
    NIBBLE_TRY(const std::string before, normalize(text.substr(begin, i - begin)));
    out += before;
    const size_t bad = Utf8InvalidLength(text.substr(i));
    out += text.substr(i, bad);
    i += bad;
    begin = i;
  }
  NIBBLE_TRY(const std::string rest, normalize(text.substr(begin)));
  return out + rest;
}

Status Tokenizer::Impl::EncodePart(std::string_view text, bool at_start,
                                   const EncodeOptions& options, TokenModel::Workspace& workspace,
                                   std::vector<TokenId>& out, bool& cut) const {
  NIBBLE_TRY(const std::string normalized, Normalize(text));
  std::vector<AddedTokenMatcher::Part> found;
  normalized_matcher.Split(normalized, options.parse_special, found);
  for (const AddedTokenMatcher::Part& part : found) {
    if (out.size() > options.most_tokens) return {};
    if (part.id != kNoToken) {
      out.push_back(part.id);
      continue;
    }
    Pieces pieces;
    pieces.text = part.text;
    const bool starts = at_start && part.text.data() == normalized.data();
    pieces.pieces.push_back({0, static_cast<uint32_t>(part.text.size()), starts});
    pieces.most = options.most_tokens;
    for (const auto& step : parts.pretokenizers) NIBBLE_RETURN_IF_ERROR(step->Apply(pieces));
    cut = cut || pieces.cut;
    for (const Pieces::Piece& piece : pieces.pieces) {
      if (out.size() > options.most_tokens) return {};
      const size_t left = options.most_tokens - out.size();
      if (piece.end - piece.begin > left && parts.model->SurelyMore(pieces.View(piece), left)) {
        out.resize(options.most_tokens + 1, kNoToken);
        return {};
      }
      NIBBLE_RETURN_IF_ERROR(parts.model->Tokenize(pieces.View(piece), workspace, out));
    }
  }
  return {};
}

Result<std::vector<TokenId>> Tokenizer::Encode(std::string_view text, EncodeOptions options) const {
  bool cut = false;
  auto ids = impl_->Encode(text, options, cut);
  if (!cut || !ids || ids->size() > options.most_tokens) return ids;
  // Steps that left the rest of a text out, for its pieces were many, were followed by one that
  // takes pieces away.
  options.most_tokens = SIZE_MAX;
  return impl_->Encode(text, options, cut);
}

Result<std::vector<TokenId>> Tokenizer::Impl::Encode(std::string_view text,
                                                     const EncodeOptions& options,
                                                     bool& cut) const {
  // Offsets are 32 bits wide and normalisation may lengthen a text.
  constexpr size_t kMaxText = size_t{1} << 30;
  if (text.size() > kMaxText) {
    return BadInput("a text of {} bytes is too long to tokenise: the limit is {}", text.size(),
                    kMaxText);
  }
  if (!parts.model) return BadInput("the file has no vocabulary: give token ids instead");
  try {
    std::string repaired;
    if (!parts.model->accepts_any_bytes() && !IsValidUtf8(text)) {
      repaired = ReplaceInvalidUtf8(text);
      text = repaired;
    }
    std::vector<TokenId> out;
    if (options.add_special) out = parts.prefix;
    std::vector<AddedTokenMatcher::Part> found;
    raw_matcher.Split(text, options.parse_special, found);
    const auto workspace = parts.model->NewWorkspace(text.size());
    workspace->most_tokens = options.most_tokens;
    for (const AddedTokenMatcher::Part& part : found) {
      if (out.size() > options.most_tokens) return out;
      if (part.id != kNoToken) {
        out.push_back(part.id);
      } else {
        NIBBLE_RETURN_IF_ERROR(
            EncodePart(part.text, part.text.data() == text.data(), options, *workspace, out, cut));
      }
    }
    if (options.add_special) {
      out.insert(out.end(), parts.suffix.begin(), parts.suffix.end());
    }
    return out;
  } catch (const std::bad_alloc&) {
    return Fail(ErrorKind::kNoRoom, "no memory to tokenise a text of {} bytes", text.size());
  }
}

std::string Tokenizer::Decode(std::span<const TokenId> ids, DecodeOptions options) const {
  const TokenizerParts& parts = impl_->parts;
  std::string out;
  if (parts.decoder.empty() && !parts.join_with_space) {
    bool first = true;
    for (const TokenId id : ids) {
      if (!impl_->Has(id) || (options.skip_special && IsControl(id))) continue;
      std::string_view bytes = Bytes(id);
      if (first && impl_->drops_leading_space && !IsControl(id)) {
        if (bytes.starts_with(' ')) bytes.remove_prefix(1);
        first = false;
      }
      out += bytes;
    }
    return out;
  }
  std::vector<std::string> tokens;
  for (const TokenId id : ids) {
    if (!impl_->Has(id) || !parts.vocabulary.IsSet(id)) continue;
    if (options.skip_special && IsControl(id)) continue;
    tokens.emplace_back(Piece(id));
  }
  for (const auto& step : parts.decoder) step->Apply(tokens);
  const bool spaced = parts.decoder.empty();
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (spaced && i > 0) out += ' ';
    out += tokens[i];
  }
  return out;
}

std::string_view Tokenizer::Bytes(TokenId id) const {
  return impl_->Has(id) ? impl_->BytesOf(id) : std::string_view();
}

std::string_view Tokenizer::Piece(TokenId id) const {
  return impl_->Has(id) ? impl_->parts.vocabulary.Piece(id) : std::string_view();
}

std::optional<TokenId> Tokenizer::Find(std::string_view piece) const {
  const int32_t id = impl_->by_piece.Find(piece);
  if (id < 0) return std::nullopt;
  return TokenId{id};
}

int Tokenizer::vocab_size() const { return impl_->parts.vocabulary.size(); }

bool Tokenizer::IsControl(TokenId id) const {
  if (!impl_->Has(id)) return false;
  const TokenKind kind = impl_->parts.vocabulary.Kind(id);
  return kind == TokenKind::kControl || kind == TokenKind::kUnknown;
}

bool Tokenizer::IsEnd(TokenId id) const {
  return std::ranges::binary_search(impl_->parts.end_tokens, id);
}

std::span<const TokenId> Tokenizer::end_tokens() const { return impl_->parts.end_tokens; }

void Tokenizer::AddEndTokens(std::span<const TokenId> ids) {
  std::vector<TokenId>& ends = impl_->parts.end_tokens;
  for (const TokenId id : ids) {
    if (impl_->Has(id)) ends.push_back(id);
  }
  SortUnique(ends);
}

std::optional<TokenId> Tokenizer::bos() const { return impl_->parts.bos; }
std::optional<TokenId> Tokenizer::eos() const { return impl_->parts.eos; }
std::optional<TokenId> Tokenizer::unknown() const { return impl_->parts.unknown; }
std::optional<TokenId> Tokenizer::pad() const { return impl_->parts.pad; }

bool Tokenizer::adds_bos() const {
  const TokenizerParts& p = impl_->parts;
  return p.bos && std::ranges::find(p.prefix, *p.bos) != p.prefix.end();
}

bool Tokenizer::adds_eos() const {
  const TokenizerParts& p = impl_->parts;
  return p.eos && std::ranges::find(p.suffix, *p.eos) != p.suffix.end();
}

std::string_view Tokenizer::chat_template() const { return impl_->parts.chat_template; }
std::string_view Tokenizer::description() const { return impl_->parts.description; }
bool Tokenizer::drops_leading_space() const { return impl_->drops_leading_space; }

}  // namespace nibble
