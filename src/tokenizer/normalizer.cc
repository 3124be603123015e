#include "tokenizer/normalizer.h"

#include "base/utf8.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/piece_trie.h"

namespace nibble {
namespace {

// map(c, out) appends what becomes of one character.
template <class Map>
class PerCharacter final : public Normalizer {
 public:
  explicit PerCharacter(Map map) : map_(map) {}
  Result<std::string> Apply(std::string text) const override {
    std::string out;
    out.reserve(text.size());
    for (size_t i = 0; i < text.size();) {
      const DecodedChar c = DecodeUtf8Safely(text, i);
      map_(c.code, out);
      i += c.length;
    }
    return out;
  }

 private:
  Map map_;
};

class UnicodeForm final : public Normalizer {
 public:
  explicit UnicodeForm(NormalForm form) : form_(form) {}
  Result<std::string> Apply(std::string text) const override {
    return NormalizeUnicode(text, form_);
  }

 private:
  NormalForm form_;
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  Result<std::string> Apply(std::string text) const override {
    size_t begin = 0;
    while (left_ && begin < text.size()) {
      const DecodedChar c = DecodeUtf8Safely(text, begin);
      if (!IsUnicodeWhitespace(c.code)) break;
      begin += c.length;
    }
    size_t end = text.size();
    while (right_ && end > begin) {
      size_t start = end - 1;
      while (start > begin && (static_cast<uint8_t>(text[start]) & 0xC0) == 0x80) --start;
      if (!IsUnicodeWhitespace(DecodeUtf8Safely(text, start).code)) break;
      end = start;
    }
    return text.substr(begin, end - begin);
  }

 private:
  bool left_, right_;
};

// A text grows by a few times at most ("▁" for a blank); a file that asks for more asks for all our
// memory, the more so with several such rules in a row.
Status CheckGrowth(std::string_view text, size_t matches, std::string_view content) {
  const size_t limit = 16 * text.size() + 4096;
  if (matches == 0 || content.size() <= limit / matches) return {};
  return BadInput("normalizer 'Replace': {} times {} bytes would make a text of {} bytes too long",
                  matches, content.size(), text.size());
}

class Replace final : public Normalizer {
 public:
  Replace(Regex pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  Result<std::string> Apply(std::string text) const override {
    RegexMatcher matcher(pattern_, text.size());
    std::vector<MatchRange> matches;
    NIBBLE_RETURN_IF_ERROR(matcher.FindAll(text, matches));
    NIBBLE_RETURN_IF_ERROR(CheckGrowth(text, matches.size(), content_));
    std::string out;
    size_t previous = 0;
    for (const MatchRange& m : matches) {
      out.append(text, previous, m.begin - previous);
      out += content_;
      previous = m.end;
    }
    out.append(text, previous);
    return out;
  }

 private:
  Regex pattern_;
  std::string content_;
};

class ReplaceText final : public Normalizer {
 public:
  ReplaceText(std::string pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  Result<std::string> Apply(std::string text) const override {
    if (pattern_.empty()) return text;
    std::string out;
    out.reserve(text.size() + text.size() / 4);
    size_t previous = 0;
    size_t matches = 0;
    for (size_t at; (at = text.find(pattern_, previous)) != std::string::npos;) {
      NIBBLE_RETURN_IF_ERROR(CheckGrowth(text, ++matches, content_));
      out.append(text, previous, at - previous);
      out += content_;
      previous = at + pattern_.size();
    }
    out.append(text, previous);
    return out;
  }

 private:
  std::string pattern_, content_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  Result<std::string> Apply(std::string text) const override {
    return text.empty() ? text : prefix_ + text;
  }

 private:
  std::string prefix_;
};

class Precompiled final : public Normalizer {
 public:
  explicit Precompiled(Charsmap charsmap) : charsmap_(std::move(charsmap)) {}
  Result<std::string> Apply(std::string text) const override {
    std::string out;
    out.reserve(text.size());
    for (size_t i = 0; i < text.size();) {
      const size_t n = GraphemeLength(text, i);
      const std::string_view grapheme = std::string_view(text).substr(i, n);
      i += n;
      // The library replaces a short cluster by its shortest known prefix's replacement.
      if (n < 6) {
        if (const auto match = charsmap_.Shortest(grapheme); match.length > 0) {
          out += match.replacement;
          continue;
        }
      }
      for (size_t at = 0; at < n;) {
        const size_t length = DecodeUtf8Safely(grapheme, at).length;
        const std::string_view character = grapheme.substr(at, length);
        const auto match = charsmap_.Shortest(character);
        out += match.length > 0 ? match.replacement : character;
        at += length;
      }
    }
    return out;
  }

 private:
  Charsmap charsmap_;
};

class Bert final : public Normalizer {
 public:
  explicit Bert(BertOptions options) : options_(options) {}
  Result<std::string> Apply(std::string text) const override {
    if (options_.clean_text || options_.handle_chinese_chars) text = Clean(text);
    if (options_.strip_accents) {
      const std::string decomposed = NormalizeUnicode(text, NormalForm::kNfd);
      text.clear();
      for (size_t i = 0; i < decomposed.size();) {
        const DecodedChar c = DecodeUtf8Safely(decomposed, i);
        if (!IsNonspacingMark(c.code)) text.append(decomposed, i, c.length);
        i += c.length;
      }
    }
    if (!options_.lowercase) return text;
    return MakeLowercase()->Apply(std::move(text));
  }

 private:
  std::string Clean(const std::string& text) const {
    std::string out;
    out.reserve(text.size());
    for (size_t i = 0; i < text.size();) {
      const DecodedChar c = DecodeUtf8Safely(text, i);
      i += c.length;
      if (options_.clean_text) {
        const bool spacing = c.code == '\t' || c.code == '\n' || c.code == '\r';
        if (c.code == 0 || c.code == kReplacementChar || (!spacing && IsUnicodeOther(c.code))) {
          continue;
        }
        if (spacing || IsUnicodeWhitespace(c.code)) {
          out += ' ';
          continue;
        }
      }
      const bool apart = options_.handle_chinese_chars && IsCjkIdeograph(c.code);
      if (apart) out += ' ';
      AppendUtf8(out, c.code);
      if (apart) out += ' ';
    }
    return out;
  }

  BertOptions options_;
};

class SentencePiece final : public Normalizer {
 public:
  SentencePiece(Charsmap charsmap, SentencePieceOptions options)
      : charsmap_(std::move(charsmap)), options_(std::move(options)) {
    std::vector<std::pair<std::string_view, int32_t>> texts;
    for (const std::string& text : options_.user_defined) texts.emplace_back(text, 0);
    user_defined_ = PieceTrie(std::move(texts));
  }

  Result<std::string> Apply(std::string input) const override {
    std::string_view text = input;
    if (options_.remove_extra_whitespaces) {
      while (!text.empty()) {
        const Charsmap::Match next = Next(text);
        if (next.replacement != " ") break;
        text.remove_prefix(next.length);
      }
    }
    std::string out;
    if (text.empty()) return out;
    const std::string_view space = options_.escape_whitespaces ? "\xE2\x96\x81" : " ";
    out.reserve(text.size() + text.size() / 4);
    if (!options_.whitespace_as_suffix && options_.add_dummy_prefix) out += space;
    bool after_space = options_.remove_extra_whitespaces;
    while (!text.empty()) {
      const Charsmap::Match next = Next(text);
      std::string_view part = next.replacement;
      while (after_space && part.starts_with(' ')) part.remove_prefix(1);
      if (!part.empty()) {
        for (const char c : part) {
          if (c == ' ') {
            out += space;
          } else {
            out += c;
          }
        }
        after_space = part.ends_with(' ');
      }
      text.remove_prefix(next.length);
      if (!options_.remove_extra_whitespaces) after_space = false;
    }
    if (options_.remove_extra_whitespaces) {
      while (out.ends_with(space)) out.resize(out.size() - space.size());
    }
    if (options_.whitespace_as_suffix && options_.add_dummy_prefix) out += space;
    return out;
  }

 private:
  // What the start of text becomes, and how many bytes of it that takes.
  Charsmap::Match Next(std::string_view text) const {
    if (const auto match = user_defined_.Longest(text); match.length > 0) {
      return {match.length, text.substr(0, match.length)};
    }
    if (const auto match = charsmap_.Longest(text); match.length > 0) return match;
    const size_t length = Utf8CharLength(text);
    if (length == 0) return {1, "\xEF\xBF\xBD"};
    return {length, text.substr(0, length)};
  }

  Charsmap charsmap_;
  SentencePieceOptions options_;
  PieceTrie user_defined_;
};

void MapNmt(char32_t c, std::string& out) {
  if ((c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F ||
      c == 0x9F) {
    return;
  }
  const bool space = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
                     (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                     c == 0xFEFF || c == 0xFFFD;
  if (space) {
    out += ' ';
  } else {
    AppendUtf8(out, c);
  }
}

template <class Map>
std::unique_ptr<Normalizer> MakePerCharacter(Map map) {
  return std::make_unique<PerCharacter<Map>>(map);
}

}  // namespace

std::unique_ptr<Normalizer> MakeUnicodeForm(NormalForm form) {
  return std::make_unique<UnicodeForm>(form);
}
std::unique_ptr<Normalizer> MakeLowercase() {
  return MakePerCharacter([](char32_t c, std::string& out) { AppendLowercase(out, c); });
}
std::unique_ptr<Normalizer> MakeStrip(bool left, bool right) {
  return std::make_unique<Strip>(left, right);
}
std::unique_ptr<Normalizer> MakeStripAccents() {
  return MakePerCharacter([](char32_t c, std::string& out) {
    if (!IsUnicodeMark(c)) AppendUtf8(out, c);
  });
}
std::unique_ptr<Normalizer> MakeReplace(Regex pattern, std::string content) {
  return std::make_unique<Replace>(std::move(pattern), std::move(content));
}
std::unique_ptr<Normalizer> MakeReplaceText(std::string pattern, std::string content) {
  return std::make_unique<ReplaceText>(std::move(pattern), std::move(content));
}
std::unique_ptr<Normalizer> MakePrepend(std::string prefix) {
  return std::make_unique<Prepend>(std::move(prefix));
}
std::unique_ptr<Normalizer> MakeNmt() { return MakePerCharacter(MapNmt); }
std::unique_ptr<Normalizer> MakeByteLevelNormalizer() {
  return MakePerCharacter([](char32_t c, std::string& out) {
    std::string bytes;
    AppendUtf8(bytes, c);
    out += BytesToByteLevel(bytes);
  });
}
std::unique_ptr<Normalizer> MakePrecompiled(Charsmap charsmap) {
  return std::make_unique<Precompiled>(std::move(charsmap));
}
std::unique_ptr<Normalizer> MakeBert(BertOptions options) {
  return std::make_unique<Bert>(options);
}
std::unique_ptr<Normalizer> MakeSentencePiece(Charsmap charsmap, SentencePieceOptions options) {
  return std::make_unique<SentencePiece>(std::move(charsmap), std::move(options));
}

}  // namespace nibble
