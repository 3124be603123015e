#include "tokenizer/pretokenizer.h"

#include <algorithm>
#include <optional>

#include "base/utf8.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/unicode.h"

namespace nibble {

const std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

using Piece = Pieces::Piece;

struct Part {
  uint32_t begin, end;  // relative to the piece
  bool is_match;
};

// Turns the matches of one piece into the parts between and at them, as the library's
// NormalizedString::split does.
void ApplyBehavior(std::vector<Part>& parts, SplitBehavior behavior) {
  std::vector<Part> out;
  switch (behavior) {
    case SplitBehavior::kIsolated:
      return;
    case SplitBehavior::kRemoved:
      std::erase_if(parts, [](const Part& p) { return p.is_match; });
      return;
    case SplitBehavior::kContiguous: {
      bool previous = false;
      for (const Part& p : parts) {
        if (p.is_match == previous && !out.empty()) {
          out.back().end = p.end;
        } else {
          out.push_back(p);
        }
        previous = p.is_match;
      }
      break;
    }
    case SplitBehavior::kMergedWithPrevious: {
      bool previous = false;
      for (const Part& p : parts) {
        if (p.is_match && !previous && !out.empty()) {
          out.back().end = p.end;
        } else {
          out.push_back(p);
        }
        previous = p.is_match;
      }
      break;
    }
    case SplitBehavior::kMergedWithNext: {
      bool previous = false;
      for (size_t i = parts.size(); i-- > 0;) {
        const Part& p = parts[i];
        if (p.is_match && !previous && !out.empty()) {
          out.back().begin = p.begin;
        } else {
          out.push_back(p);
        }
        previous = p.is_match;
      }
      std::ranges::reverse(out);
      break;
    }
  }
  parts = std::move(out);
}

// Where parts are joined the last one of a text that is left out half way would not be whole.
size_t MostParts(SplitBehavior behavior, const Pieces& pieces) {
  const bool joins = behavior != SplitBehavior::kIsolated && behavior != SplitBehavior::kRemoved;
  return joins ? SIZE_MAX : pieces.most;
}

void AppendParts(const Piece& piece, const std::vector<Part>& parts, std::vector<Piece>& out) {
  for (const Part& p : parts) {
    if (p.begin == p.end) continue;
    out.push_back({piece.begin + p.begin, piece.begin + p.end, piece.at_start && p.begin == 0});
  }
}

class RegexSplit final : public PreTokenizer {
 public:
  RegexSplit(Regex regex, SplitBehavior behavior, bool invert)
      : regex_(std::move(regex)), behavior_(behavior), invert_(invert) {}

  Status Apply(Pieces& pieces) const override {
    RegexMatcher matcher(regex_, pieces.text.size());
    std::vector<Piece> out;
    out.reserve(pieces.pieces.size() + pieces.text.size() / 4);
    std::vector<MatchRange> matches;
    std::vector<Part> parts;
    const size_t most = MostParts(behavior_, pieces);
    bool cut = false;
    for (const Piece& piece : pieces.pieces) {
      if (cut || out.size() > pieces.most) {
        pieces.cut = true;
        break;
      }
      matches.clear();
      NIBBLE_RETURN_IF_ERROR(matcher.FindAll(pieces.View(piece), matches, most));
      parts.clear();
      uint32_t previous = 0;
      for (const MatchRange& m : matches) {
        if (previous != m.begin) parts.push_back({previous, m.begin, invert_});
        parts.push_back({m.begin, m.end, !invert_});
        previous = m.end;
      }
      const uint32_t size = piece.end - piece.begin;
      cut = matches.size() > most;
      if (previous != size && !cut) parts.push_back({previous, size, invert_});
      ApplyBehavior(parts, behavior_);
      AppendParts(piece, parts, out);
    }
    pieces.cut = pieces.cut || cut;
    pieces.pieces = std::move(out);
    return {};
  }

 private:
  Regex regex_;
  SplitBehavior behavior_;
  bool invert_;
};

// Splits at single characters that a predicate accepts.
template <class Predicate>
class CharSplit final : public PreTokenizer {
 public:
  CharSplit(Predicate matches, SplitBehavior behavior) : matches_(matches), behavior_(behavior) {}

  Status Apply(Pieces& pieces) const override {
    std::vector<Piece> out;
    std::vector<Part> parts;
    const size_t most = MostParts(behavior_, pieces);
    bool cut = false;
    for (const Piece& piece : pieces.pieces) {
      if (cut || out.size() > pieces.most) {
        pieces.cut = true;
        break;
      }
      const std::string_view text = pieces.View(piece);
      parts.clear();
      uint32_t start = 0;
      for (uint32_t i = 0; i < text.size();) {
        const DecodedChar c = DecodeUtf8Safely(text, i);
        if (matches_(c.code)) {
          cut = parts.size() > most;
          if (cut) break;
          if (start != i) parts.push_back({start, i, false});
          parts.push_back({i, i + c.length, true});
          start = i + c.length;
        }
        i += c.length;
      }
      if (start != text.size() && !cut) {
        parts.push_back({start, static_cast<uint32_t>(text.size()), false});
      }
      ApplyBehavior(parts, behavior_);
      AppendParts(piece, parts, out);
    }
    pieces.cut = pieces.cut || cut;
    pieces.pieces = std::move(out);
    return {};
  }

 private:
  Predicate matches_;
  SplitBehavior behavior_;
};

class FixedLength final : public PreTokenizer {
 public:
  explicit FixedLength(size_t characters) : characters_(characters) {}
  Status Apply(Pieces& pieces) const override {
    std::vector<Piece> out;
    for (const Piece& piece : pieces.pieces) {
      const std::string_view text = pieces.View(piece);
      uint32_t start = 0;
      size_t count = 0;
      for (uint32_t i = 0; i < text.size();) {
        i += DecodeUtf8Safely(text, i).length;
        if (++count == characters_ || i == text.size()) {
          out.push_back({piece.begin + start, piece.begin + i, piece.at_start && start == 0});
          start = i;
          count = 0;
        }
      }
    }
    pieces.pieces = std::move(out);
    return {};
  }

 private:
  size_t characters_;
};

class DigitGroups final : public PreTokenizer {
 public:
  explicit DigitGroups(DigitGroupOptions options) : options_(options) {}
  Status Apply(Pieces& pieces) const override {
    std::vector<Piece> out;
    std::vector<uint32_t> digits;  // where each digit of the run begins
    for (const Piece& piece : pieces.pieces) {
      const std::string_view text = pieces.View(piece);
      uint32_t start = 0;
      const auto cut = [&](uint32_t at) {
        if (at == start) return;
        out.push_back({piece.begin + start, piece.begin + at, piece.at_start && start == 0});
        start = at;
      };
      for (uint32_t i = 0; i < text.size();) {
        digits.clear();
        DecodedChar c = DecodeUtf8Safely(text, i);
        while (options_.decimal_only ? IsUnicodeDecimal(c.code) : IsUnicodeNumeric(c.code)) {
          digits.push_back(i);
          i += c.length;
          if (i >= text.size()) break;
          c = DecodeUtf8Safely(text, i);
        }
        if (digits.empty()) {
          i += c.length;
          continue;
        }
        if (options_.need_boundary && i < text.size() && IsWordChar(c.code)) continue;
        if (options_.isolate_run) cut(digits[0]);
        for (size_t d = digits.size() % 3; d < digits.size(); d += 3) cut(digits[d]);
        if (options_.isolate_run) cut(i);
      }
      cut(static_cast<uint32_t>(text.size()));
    }
    pieces.pieces = std::move(out);
    return {};
  }

 private:
  DigitGroupOptions options_;
};

// Rebuilds the text piece by piece; rewrite(view, piece, out) appends the new text.
template <class Rewrite>
void RewritePieces(Pieces& pieces, Rewrite&& rewrite) {
  std::string text;
  text.reserve(pieces.text.size() + pieces.text.size() / 4 + 16);
  for (Piece& piece : pieces.pieces) {
    const auto begin = static_cast<uint32_t>(text.size());
    rewrite(pieces.View(piece), piece, text);
    piece.begin = begin;
    piece.end = static_cast<uint32_t>(text.size());
  }
  std::erase_if(pieces.pieces, [](const Piece& p) { return p.begin == p.end; });
  pieces.text = std::move(text);
}

class Metaspace final : public PreTokenizer {
 public:
  Metaspace(std::string replacement, MetaspacePrepend prepend, bool split)
      : replacement_(std::move(replacement)), prepend_(prepend), split_(split) {}

  Status Apply(Pieces& pieces) const override {
    RewritePieces(pieces, [&](std::string_view in, const Piece& piece, std::string& out) {
      const bool wanted = prepend_ == MetaspacePrepend::kAlways ||
                          (prepend_ == MetaspacePrepend::kFirst && piece.at_start);
      if (wanted && !in.starts_with(replacement_) && !in.starts_with(' ')) out += replacement_;
      for (const char c : in) {
        if (c == ' ') {
          out += replacement_;
        } else {
          out += c;
        }
      }
    });
    if (split_) SplitBeforeReplacement(pieces);
    return {};
  }

 private:
  // Behaviour MergedWithNext with single-character matches: a cut before every replacement.
  void SplitBeforeReplacement(Pieces& pieces) const {
    std::vector<Piece> out;
    for (const Piece& piece : pieces.pieces) {
      const std::string_view text = pieces.View(piece);
      size_t start = 0;
      while (start < text.size()) {
        size_t next = text.find(replacement_, start + 1);
        if (next == std::string_view::npos) next = text.size();
        out.push_back({static_cast<uint32_t>(piece.begin + start),
                       static_cast<uint32_t>(piece.begin + next), piece.at_start && start == 0});
        start = next;
      }
    }
    pieces.pieces = std::move(out);
  }

  std::string replacement_;
  MetaspacePrepend prepend_;
  bool split_;
};

class PrefixSpace final : public PreTokenizer {
 public:
  Status Apply(Pieces& pieces) const override {
    RewritePieces(pieces, [](std::string_view in, const Piece&, std::string& out) {
      if (!in.starts_with(' ')) out += ' ';
      out += in;
    });
    return {};
  }
};

class ByteLevelMap final : public PreTokenizer {
 public:
  Status Apply(Pieces& pieces) const override {
    RewritePieces(pieces, [](std::string_view in, const Piece&, std::string& out) {
      for (const char c : in) AppendByteLevel(out, static_cast<unsigned char>(c));
    });
    return {};
  }
};

class ByteLevelUnmap final : public PreTokenizer {
 public:
  Status Apply(Pieces& pieces) const override {
    RewritePieces(pieces, [](std::string_view in, const Piece&, std::string& out) {
      for (size_t i = 0; i < in.size();) {
        const DecodedChar c = DecodeUtf8Safely(in, i);
        const int byte = ByteLevelByte(c.code);
        // A step behind the map added this character; its bytes stand for themselves.
        if (byte < 0) {
          out += in.substr(i, c.length);
        } else {
          out += static_cast<char>(byte);
        }
        i += c.length;
      }
    });
    return {};
  }
};

}  // namespace

std::unique_ptr<PreTokenizer> MakeRegexSplit(Regex regex, SplitBehavior behavior, bool invert) {
  return std::make_unique<RegexSplit>(std::move(regex), behavior, invert);
}

std::unique_ptr<PreTokenizer> MakeCharSplit(CharPredicate matches, SplitBehavior behavior) {
  return std::make_unique<CharSplit<CharPredicate>>(matches, behavior);
}

std::unique_ptr<PreTokenizer> MakeDelimiterSplit(char32_t delimiter, SplitBehavior behavior) {
  const auto matches = [delimiter](char32_t c) { return c == delimiter; };
  return std::make_unique<CharSplit<decltype(matches)>>(matches, behavior);
}

std::unique_ptr<PreTokenizer> MakeFixedLength(size_t characters) {
  return std::make_unique<FixedLength>(characters);
}

std::unique_ptr<PreTokenizer> MakeDigitGroups(DigitGroupOptions options) {
  return std::make_unique<DigitGroups>(options);
}

std::unique_ptr<PreTokenizer> MakeMetaspace(std::string replacement, MetaspacePrepend prepend,
                                            bool split) {
  return std::make_unique<Metaspace>(std::move(replacement), prepend, split);
}

Result<std::unique_ptr<PreTokenizer>> MakeIsolatedSplit(std::string_view pattern) {
  // Three published expressions that would take quadratic time on a long run of digits.
  if (pattern == R"(\d{1,3}(?=(?:\d{3})*\b))") {
    return MakeDigitGroups({.need_boundary = true, .isolate_run = true, .decimal_only = true});
  }
  if (pattern == R"(\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})))") {
    return MakeDigitGroups({.isolate_run = true});
  }
  if (pattern == R"((?=(\d{3})+(?!\d)))") return MakeDigitGroups({.decimal_only = true});
  NIBBLE_TRY(Regex regex, Regex::Compile(pattern, RegexDialect::kOniguruma));
  return MakeRegexSplit(std::move(regex), SplitBehavior::kIsolated, false);
}

std::unique_ptr<PreTokenizer> MakePrefixSpace() { return std::make_unique<PrefixSpace>(); }
std::unique_ptr<PreTokenizer> MakeByteLevelMap() { return std::make_unique<ByteLevelMap>(); }
std::unique_ptr<PreTokenizer> MakeByteLevelUnmap() { return std::make_unique<ByteLevelUnmap>(); }

}  // namespace nibble
