#include "tokenizer/jinja_lexer.h"

#include <algorithm>
#include <charconv>

#include "tokenizer/jinja_text.h"

namespace nibble::jinja {
namespace {

[[noreturn]] void FailAt(int line, std::string message) {
  TemplateError error(std::move(message));
  error.line = line;
  throw error;
}

// "\r\n" and "\r" become "\n"; one newline at the end goes (jinja2's keep_trailing_newline=False).
std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool IsDigitIn(char c, int base) {
  if (c >= '0' && c <= '9') return c - '0' < base;
  c |= 0x20;
  return base == 16 && c >= 'a' && c <= 'f';
}

class Lexer {
 public:
  Lexer(std::string_view source, const JinjaOptions& options)
      : source_(NormalizeNewlines(source)), text_(source_), options_(options) {}

  std::vector<Token> Run() {
    while (LexData()) {
    }
    Emit(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  enum class Tag { kVariable, kBlock, kComment, kRaw };

  void Emit(TokenKind kind, std::string text) {
    tokens_.push_back(Token{kind, line_, std::move(text), Value()});
  }

  // Moves on by n bytes, counting lines.
  void Advance(size_t n) {
    line_ += int(std::count(text_.begin() + long(pos_), text_.begin() + long(pos_ + n), '\n'));
    pos_ += n;
    if (n > 0) line_starting_ = text_[pos_ - 1] == '\n';
  }

  void SkipSign() {
    if (pos_ < text_.size() && (text_[pos_] == '-' || text_[pos_] == '+')) Advance(1);
  }

  bool At(std::string_view what) const { return text_.substr(pos_).starts_with(what); }

  size_t SpaceLength(size_t at) const {
    return text_.size() - at - StripLeft(text_.substr(at)).size();
  }

  // Length of `{%[-+]?\s*raw\s*(-%}\s*|%})` at `at`, else 0.
  size_t RawBegin(size_t at) const {
    size_t p = at + 2;
    if (p < text_.size() && (text_[p] == '-' || text_[p] == '+')) ++p;
    p += SpaceLength(p);
    if (!text_.substr(p).starts_with("raw")) return 0;
    p += 3;
    p += SpaceLength(p);
    if (text_.substr(p).starts_with("-%}")) {
      p += 3;
      return p + SpaceLength(p) - at;
    }
    return text_.substr(p).starts_with("%}") ? p + 2 - at : 0;
  }

  // Emits the text before a tag that begins at `end` with an optional sign behind its two bytes.
  void EmitDataBefore(size_t end, bool is_variable) {
    std::string_view data = text_.substr(pos_, end - pos_);
    const char sign = end + 2 < text_.size() ? text_[end + 2] : ' ';
    if (sign == '-') {
      data = StripRight(data);
    } else if (sign != '+' && options_.lstrip_blocks && !is_variable) {
      const size_t newline = data.rfind('\n');
      const size_t begin = newline == data.npos ? 0 : newline + 1;
      if ((begin > 0 || line_starting_) && StripLeft(data.substr(begin)).empty()) {
        data = data.substr(0, begin);
      }
    }
    if (!data.empty()) Emit(TokenKind::kData, std::string(data));
    Advance(end - pos_);
  }

  // Text up to the next tag and that tag. False at the end of the source.
  bool LexData() {
    size_t at = pos_;
    for (;; ++at) {
      at = text_.find('{', at);
      if (at == text_.npos || at + 1 >= text_.size()) {
        if (pos_ < text_.size()) Emit(TokenKind::kData, std::string(text_.substr(pos_)));
        Advance(text_.size() - pos_);
        return false;
      }
      const char next = text_[at + 1];
      if (next == '{' || next == '%' || next == '#') break;
    }
    const char next = text_[at + 1];
    EmitDataBefore(at, next == '{');
    if (next == '#') {
      LexComment();
    } else if (const size_t raw = next == '%' ? RawBegin(pos_) : 0) {
      Advance(raw);
      LexRaw();
    } else {
      Emit(next == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, "");
      Advance(2);
      SkipSign();
      LexExpression(next == '{');
    }
    return true;
  }

  // Length of an end tag at `at` ("-%}" and the space behind it, "+%}", "%}" and a newline).
  size_t EndTag(size_t at, std::string_view tag, bool is_variable) const {
    const std::string_view rest = text_.substr(at);
    if (rest.starts_with('-') && rest.substr(1).starts_with(tag)) {
      return 3 + SpaceLength(at + 3);
    }
    if (!is_variable && rest.starts_with('+') && rest.substr(1).starts_with(tag)) return 3;
    if (!rest.starts_with(tag)) return 0;
    return 2 + (!is_variable && options_.trim_blocks && rest.substr(2).starts_with('\n'));
  }

  void LexComment() {
    const int line = line_;
    Advance(2);
    SkipSign();
    for (size_t at = pos_;; ++at) {
      at = text_.find_first_of("-+#", at);
      if (at == text_.npos) FailAt(line, "Missing end of comment tag");
      if (const size_t end = EndTag(at, "#}", false)) {
        Advance(at + end - pos_);
        return;
      }
    }
  }

  void LexRaw() {
    const int line = line_;
    for (size_t at = pos_;; ++at) {
      at = text_.find("{%", at);
      if (at == text_.npos) FailAt(line, "Missing end of raw directive");
      size_t p = at + 2;
      if (p < text_.size() && (text_[p] == '-' || text_[p] == '+')) ++p;
      p += SpaceLength(p);
      if (!text_.substr(p).starts_with("endraw")) continue;
      p += 6;
      p += SpaceLength(p);
      const size_t end = EndTag(p, "%}", false);
      if (end == 0) continue;
      EmitDataBefore(at, false);
      Advance(p + end - pos_);
      return;
    }
  }

  void LexExpression(bool is_variable) {
    const std::string_view tag = is_variable ? "}}" : "%}";
    std::string brackets;
    while (pos_ < text_.size()) {
      if (brackets.empty()) {
        if (const size_t end = EndTag(pos_, tag, is_variable)) {
          Emit(is_variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, "");
          Advance(end);
          return;
        }
      }
      if (const size_t space = SpaceLength(pos_)) {
        Advance(space);
        continue;
      }
      if (!LexNumber() && !LexName() && !LexString()) LexOperator(brackets);
    }
  }

  // Digits of a base with single underscores between them, from p on.
  size_t Digits(size_t p, int base) const {
    const size_t begin = p;
    while (p < text_.size()) {
      const bool underscore = text_[p] == '_' && p > begin;
      const size_t digit = p + underscore;
      if (digit >= text_.size() || !IsDigitIn(text_[digit], base)) break;
      p = digit + 1;
    }
    return p - begin;
  }

  bool LexNumber() {
    if (!IsDigitIn(text_[pos_], 10)) return false;
    if (LexFloat()) return true;
    size_t length = 0;
    int base = 10;
    size_t skip = 0;
    if (text_[pos_] == '0' && pos_ + 1 < text_.size()) {
      const char kind = char(text_[pos_ + 1] | 0x20);
      base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
      // The prefix may be followed by an underscore, which Digits() itself does not allow.
      if (base != 10) {
        skip = 2 + (pos_ + 2 < text_.size() && text_[pos_ + 2] == '_');
        length = Digits(pos_ + skip, base);
        if (length == 0) base = 10;
      }
    }
    if (base == 10) {
      skip = 0;
      length = Digits(pos_, 10);
      if (text_[pos_] == '0') {  // only zeros may follow
        const std::string_view digits = text_.substr(pos_, length);
        length = std::min(digits.find_first_not_of("0_"), digits.size());
        while (text_[pos_ + length - 1] == '_') --length;
      }
    }
    std::string digits(text_.substr(pos_ + skip, length));
    std::erase(digits, '_');
    int64_t value = 0;
    const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (end.ec != std::errc()) FailAt(line_, "integer literal does not fit 64 bits: " + digits);
    Emit(TokenKind::kInteger, digits);
    tokens_.back().number = Value::Int(value);
    Advance(skip + length);
    return true;
  }

  bool LexFloat() {
    if (pos_ > 0 && text_[pos_ - 1] == '.') return false;
    size_t p = pos_ + Digits(pos_, 10);
    bool is_float = false;
    if (p + 1 < text_.size() && text_[p] == '.' && IsDigitIn(text_[p + 1], 10)) {
      p += 1 + Digits(p + 1, 10);
      is_float = true;
    }
    if (p < text_.size() && (text_[p] | 0x20) == 'e') {
      size_t q = p + 1;
      if (q < text_.size() && (text_[q] == '+' || text_[q] == '-')) ++q;
      const size_t exponent = Digits(q, 10);
      if (exponent) {
        p = q + exponent;
        is_float = true;
      }
    }
    if (!is_float) return false;
    std::string digits(text_.substr(pos_, p - pos_));
    std::erase(digits, '_');
    Emit(TokenKind::kFloat, digits);
    tokens_.back().number = Value::Float(ParseDecimal(digits));
    Advance(p - pos_);
    return true;
  }

  // Out-of-range values become 0 or infinity, as in Python; from_chars leaves them unset.
  static double ParseDecimal(const std::string& digits) {
    return std::strtod(digits.c_str(), nullptr);
  }

  bool LexName() {
    size_t p = pos_;
    while (p < text_.size()) {
      size_t next = p;
      if (!IsWord(NextCodePoint(text_, next))) break;
      p = next;
    }
    if (p == pos_) return false;
    size_t first = pos_;
    if (!IsIdentifierStart(NextCodePoint(text_, first))) {
      FailAt(line_, "Invalid character in identifier");
    }
    Emit(TokenKind::kName, std::string(text_.substr(pos_, p - pos_)));
    Advance(p - pos_);
    return true;
  }

  bool LexString() {
    const char quote = text_[pos_];
    if (quote != '\'' && quote != '"') return false;
    size_t p = pos_ + 1;
    while (p < text_.size() && text_[p] != quote) p += text_[p] == '\\' ? 2 : 1;
    if (p >= text_.size())
      FailAt(line_, fmt::format("unexpected char {}", quote == '"' ? "'\"'" : "\"'\""));
    Emit(TokenKind::kString, Unescape(text_.substr(pos_ + 1, p - pos_ - 1)));
    Advance(p + 1 - pos_);
    return true;
  }

  // Python's unicode-escape codec, after non-ASCII characters were made \x, \u or \U escapes.
  std::string Unescape(std::string_view body) {
    std::string out;
    for (size_t i = 0; i < body.size();) {
      if (body[i] != '\\') {
        out += body[i++];
        continue;
      }
      ++i;
      const size_t start = i;
      const uint32_t c = NextCodePoint(body, i);
      static constexpr std::string_view kPlain = "\\'\"abfnrtv";
      static constexpr std::string_view kMeaning = "\\'\"\a\b\f\n\r\t\v";
      if (c == '\n') continue;
      if (const size_t at = c < 128 ? kPlain.find(char(c)) : kPlain.npos; at != kPlain.npos) {
        out += kMeaning[at];
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        AppendCodePoint(out, HexEscape(body, i, digits));
        i += digits;
      } else if (c >= '0' && c < '8') {
        uint32_t value = c - '0';
        for (int n = 1; n < 3 && i < body.size() && IsDigitIn(body[i], 8); ++n) {
          value = value * 8 + uint32_t(body[i++] - '0');
        }
        AppendCodePoint(out, value);
      } else if (c == 'N') {
        FailAt(line_, "\\N{...} escapes are not supported");
      } else if (c >= 128) {
        out += c < 0x100     ? fmt::format("\\x{:02x}", c)
               : c < 0x10000 ? fmt::format("\\u{:04x}", c)
                             : fmt::format("\\U{:08x}", c);
      } else {
        out += '\\';
        out += body.substr(start, i - start);
      }
    }
    return out;
  }

  uint32_t HexEscape(std::string_view body, size_t at, size_t digits) {
    uint32_t value = 0;
    const std::string_view hex = body.substr(at, digits);
    const auto end = std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
    if (hex.size() != digits || end.ptr != hex.data() + digits || value > 0x10FFFF) {
      FailAt(line_, fmt::format("truncated \\{}XX escape", digits == 2 ? 'x' : 'u'));
    }
    if (value >= 0xD800 && value < 0xE000) FailAt(line_, "surrogates not allowed in a string");
    return value;
  }

  void LexOperator(std::string& brackets) {
    static constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kOne = "+-/*%~[](){}><=.:|,;";
    size_t length = 1;
    for (const auto two : kTwo) {
      if (At(two)) length = 2;
    }
    const char c = text_[pos_];
    if (length == 1 && kOne.find(c) == kOne.npos) {
      size_t p = pos_;
      NextCodePoint(text_, p);
      FailAt(line_, "unexpected char " + StringRepr(text_.substr(pos_, p - pos_)));
    }
    if (c == '(' || c == '[' || c == '{') {
      brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (brackets.empty()) FailAt(line_, fmt::format("unexpected '{}'", c));
      if (brackets.back() != c) {
        FailAt(line_, fmt::format("unexpected '{}', expected '{}'", c, brackets.back()));
      }
      brackets.pop_back();
    }
    Emit(TokenKind::kOperator, std::string(text_.substr(pos_, length)));
    Advance(length);
  }

  const std::string source_;
  const std::string_view text_;
  const JinjaOptions options_;
  size_t pos_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Tokenize(std::string_view source, const JinjaOptions& options) {
  return Lexer(source, options).Run();
}

}  // namespace nibble::jinja
