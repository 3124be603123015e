#include "grammar/gbnf.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/utf8.h"

namespace nibble::grammar {
namespace {

constexpr int kMaxParentheses = 200;
constexpr int kMaxRepetitions = 100'000;

bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

class GbnfParser {
 public:
  explicit GbnfParser(std::string_view text) : text_(text) {}

  Result<GrammarSource> Parse() {
    if (text_.size() > kMostGrammarBytes) {
      return BadInput("the grammar has {} bytes, expected at most {}", text_.size(),
                      kMostGrammarBytes);
    }
    if (const size_t bad = FindInvalidUtf8(text_); bad != std::string_view::npos) {
      at_ = bad;
      return Bad("expected UTF-8");
    }
    SkipSpace(true);
    while (at_ < text_.size()) NIBBLE_RETURN_IF_ERROR(ParseRule());
    const auto root = names_.find("root");
    if (root == names_.end() || !source_.rule(root->second).defined) {
      return BadInput("the grammar has no rule 'root'");
    }
    source_.SetRoot(root->second);
    return std::move(source_);
  }

 private:
  char Peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }

  int Line() const {
    const std::string_view before = text_.substr(0, std::min(at_, text_.size()));
    return 1 + static_cast<int>(std::ranges::count(before, '\n'));
  }

  template <class... Args>
  std::unexpected<Error> Bad(fmt::format_string<Args...> format, Args&&... args) const {
    std::string found = "the end";
    if (at_ < text_.size()) {
      const size_t length = std::max<size_t>(Utf8CharLength(text_.substr(at_)), 1);
      found = fmt::format("'{}'", ReplaceInvalidUtf8(text_.substr(at_, length)));
      if (text_[at_] == '\n') found = "the end of the line";
    }
    return BadInput("line {}: {}, found {}", Line(),
                    fmt::format(format, std::forward<Args>(args)...), found);
  }

  void SkipSpace(bool newlines) {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '\r') ++at_;
      } else if (c == ' ' || c == '\t' || (newlines && (c == '\n' || c == '\r'))) {
        ++at_;
      } else {
        return;
      }
    }
  }

  Result<std::string> Name() {
    const size_t begin = at_;
    while (IsNameByte(Peek())) ++at_;
    if (at_ == begin) return Bad("expected the name of a rule");
    return std::string(text_.substr(begin, at_ - begin));
  }

  RuleId RuleOf(const std::string& name) {
    const auto [found, is_new] = names_.try_emplace(name);
    if (is_new) found->second = source_.Declare(name, Line());
    return found->second;
  }

  Status ParseRule() {
    const int line = Line();
    NIBBLE_TRY(const std::string name, Name());
    SkipSpace(false);
    if (text_.substr(at_, 3) != "::=") return Bad("expected '::=' behind '{}'", name);
    at_ += 3;
    SkipSpace(true);
    const RuleId rule = RuleOf(name);
    if (source_.rule(rule).defined) {
      return BadInput("line {}: rule '{}' is defined a second time, first in line {}", line, name,
                      source_.rule(rule).line);
    }
    source_.rule(rule).line = line;
    NIBBLE_TRY(const ExprId body, Alternatives(0));
    source_.Define(rule, body);
    if (at_ < text_.size() && Peek() != '\n' && Peek() != '\r') {
      return Bad("expected the end of rule '{}'", name);
    }
    SkipSpace(true);
    return {};
  }

  Result<ExprId> Alternatives(int depth) {
    if (depth > kMaxParentheses) {
      return BadInput("line {}: parentheses nest deeper than {}", Line(), kMaxParentheses);
    }
    std::vector<ExprId> ways;
    while (true) {
      NIBBLE_TRY(const ExprId way, Sequence(depth));
      ways.push_back(way);
      if (Peek() != '|') return source_.Choice(ways);
      ++at_;
      SkipSpace(true);
    }
  }

  Result<ExprId> Sequence(int depth) {
    std::vector<ExprId> parts;
    while (true) {
      const char c = Peek();
      ExprId part{};
      if (c == '"') {
        NIBBLE_TRY(part, Literal());
      } else if (c == '[') {
        NIBBLE_TRY(part, CharacterClass());
      } else if (c == '.') {
        ++at_;
        part = source_.Chars(CodePointSet::All());
      } else if (c == '(') {
        ++at_;
        SkipSpace(true);
        NIBBLE_TRY(part, Alternatives(depth + 1));
        if (Peek() != ')') return Bad("expected ')'");
        ++at_;
      } else if (IsNameByte(c)) {
        NIBBLE_TRY(const std::string name, Name());
        part = source_.Use(RuleOf(name));
      } else {
        return source_.Sequence(parts);
      }
      NIBBLE_TRY(part, Repetitions(part));
      parts.push_back(part);
      SkipSpace(depth > 0);
    }
  }

  Result<ExprId> Repetitions(ExprId part) {
    while (true) {
      SkipSpace(false);
      switch (Peek()) {
        case '*':
          part = source_.Repeat(part, 0, kUnbounded);
          break;
        case '+':
          part = source_.Repeat(part, 1, kUnbounded);
          break;
        case '?':
          part = source_.Optional(part);
          break;
        case '{': {
          ++at_;
          NIBBLE_TRY(part, Counted(part));
          continue;
        }
        default:
          return part;
      }
      ++at_;
    }
  }

  Result<int> Number() {
    SkipSpace(false);
    if (Peek() < '0' || Peek() > '9') return Bad("expected a number of repetitions");
    int value = 0;
    while (Peek() >= '0' && Peek() <= '9') {
      value = value * 10 + (Peek() - '0');
      if (value > kMaxRepetitions) return Bad("expected at most {} repetitions", kMaxRepetitions);
      ++at_;
    }
    SkipSpace(false);
    return value;
  }

  // Behind '{'.
  Result<ExprId> Counted(ExprId part) {
    int min = 0;
    SkipSpace(false);
    const bool from_zero = Peek() == ',';
    if (!from_zero) {
      NIBBLE_TRY(min, Number());
    }
    int max = min;
    if (Peek() == ',') {
      ++at_;
      SkipSpace(false);
      max = kUnbounded;
      if (Peek() != '}' || from_zero) {
        NIBBLE_TRY(max, Number());
        if (max < min) return Bad("expected at least {} repetitions", min);
      }
    }
    if (Peek() != '}') return Bad("expected '}}'");
    ++at_;
    return source_.Repeat(part, min, max);
  }

  Result<char32_t> Hex(int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const char c = Peek();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return Bad("expected {} hexadecimal digits", digits);
      value = value * 16 + static_cast<char32_t>(digit);
      ++at_;
    }
    if (value > kLastCodePoint || (value >= 0xD800 && value <= 0xDFFF)) {
      return Bad("U+{:X} is no character", static_cast<uint32_t>(value));
    }
    return value;
  }

  // A character of a text or a class, at a backslash or at itself.
  Result<char32_t> Character() {
    if (Peek() != '\\') {
      const DecodedChar c = DecodeUtf8(text_, at_);
      at_ += c.length;
      return c.code;
    }
    ++at_;
    const char c = Peek();
    ++at_;
    switch (c) {
      case 'x':
        return Hex(2);
      case 'u':
        return Hex(4);
      case 'U':
        return Hex(8);
      case 'n':
        return U'\n';
      case 'r':
        return U'\r';
      case 't':
        return U'\t';
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
      case '/':
        return static_cast<char32_t>(c);
      default:
        --at_;
        return Bad("expected one of x u U n r t \\ \" [ ] - ^ / behind '\\'");
    }
  }

  Result<ExprId> Literal() {
    ++at_;
    std::string bytes;
    while (Peek() != '"') {
      if (at_ >= text_.size() || Peek() == '\n') return Bad("expected '\"'");
      NIBBLE_TRY(const char32_t c, Character());
      AppendUtf8(bytes, c);
    }
    ++at_;
    return source_.Bytes(std::move(bytes));
  }

  Result<ExprId> CharacterClass() {
    ++at_;
    const bool negated = Peek() == '^';
    if (negated) ++at_;
    CodePointSet set;
    while (Peek() != ']') {
      if (at_ >= text_.size() || Peek() == '\n') return Bad("expected ']'");
      NIBBLE_TRY(const char32_t low, Character());
      char32_t high = low;
      if (Peek() == '-' && Peek(1) != ']') {
        ++at_;
        if (at_ >= text_.size()) return Bad("expected ']'");
        NIBBLE_TRY(high, Character());
        if (high < low) return Bad("a range ends before it begins");
      }
      set.Add(low, high);
    }
    ++at_;
    return source_.Chars(negated ? set.Complement() : set);
  }

  std::string_view text_;
  size_t at_ = 0;
  GrammarSource source_;
  std::map<std::string, RuleId> names_;
};

}  // namespace

Result<GrammarSource> ParseGbnf(std::string_view text) { return GbnfParser(text).Parse(); }

}  // namespace nibble::grammar
