#include "grammar/regex_syntax.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/utf8.h"

namespace nibble::grammar {
namespace {

constexpr int kMaxGroups = 200;  // inside one another
constexpr int kMaxRepeats = 100'000;
constexpr char32_t kEnd = UINT32_MAX;

using NodeKind = RegexTree::Kind;

CodePointSet Digits() { return {{'0', '9'}}; }
CodePointSet Words() { return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}; }
CodePointSet Spaces() {
  return {{0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
          {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
}
CodePointSet LineEnds() { return {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}; }

bool IsAsciiPunctuationChar(char32_t c) {
  return c < 0x80 && c > 0x20 && !Words().Contains(c) && c != 0x7F;
}

class RegexParser {
 public:
  explicit RegexParser(std::string_view text) : text_(text) {}

  Result<RegexTree> Parse() {
    if (text_.size() > kMostRegexBytes) {
      return BadInput("the expression has {} bytes, expected at most {}", text_.size(),
                      kMostRegexBytes);
    }
    if (!IsValidUtf8(text_)) return BadInput("the expression is no UTF-8");
    NIBBLE_TRY(tree_.root, Choice(0));
    if (at_ < text_.size()) return Bad("expected the end, found ')'");
    return std::move(tree_);
  }

 private:
  template <class... Args>
  std::unexpected<Error> Bad(fmt::format_string<Args...> format, Args&&... args) const {
    return BadInput("at byte {}: {}", at_, fmt::format(format, std::forward<Args>(args)...));
  }

  char32_t Peek() const { return at_ < text_.size() ? DecodeUtf8(text_, at_).code : kEnd; }
  char32_t Take() {
    const DecodedChar c = DecodeUtf8(text_, at_);
    at_ += c.length;
    return c.code;
  }
  bool Eat(std::string_view what) {
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }

  uint32_t Push(RegexTree::Node node) {
    tree_.nodes.push_back(std::move(node));
    return static_cast<uint32_t>(tree_.nodes.size() - 1);
  }
  uint32_t PushSet(CodePointSet set) {
    return Push({.kind = NodeKind::kChars, .set = std::move(set), .parts = {}});
  }

  Result<uint32_t> Choice(int depth) {
    if (depth > kMaxGroups) return Bad("groups nest deeper than {}", kMaxGroups);
    std::vector<uint32_t> ways;
    do {
      NIBBLE_TRY(const uint32_t way, Sequence(depth));
      ways.push_back(way);
    } while (Eat("|"));
    if (ways.size() == 1) return ways.front();
    return Push({.kind = NodeKind::kChoice, .set = {}, .parts = std::move(ways)});
  }

  Result<uint32_t> Sequence(int depth) {
    std::vector<uint32_t> parts;
    while (at_ < text_.size() && Peek() != '|' && Peek() != ')') {
      NIBBLE_TRY(const uint32_t atom, Atom(depth));
      NIBBLE_TRY(const uint32_t part, Repeats(atom));
      parts.push_back(part);
    }
    if (parts.size() == 1) return parts.front();
    return Push({.kind = NodeKind::kSequence, .set = {}, .parts = std::move(parts)});
  }

  Result<uint32_t> Repeats(uint32_t atom) {
    const size_t begin = at_;
    int min = 0;
    int max = kUnbounded;
    if (Eat("*")) {
    } else if (Eat("+")) {
      min = 1;
    } else if (Eat("?")) {
      max = 1;
    } else if (Peek() == '{') {
      NIBBLE_TRY(const bool counted, Counts(min, max));
      if (!counted) return atom;
    } else {
      return atom;
    }
    const NodeKind kind = tree_.nodes[atom].kind;
    if (kind == NodeKind::kBegin || kind == NodeKind::kEnd) {
      at_ = begin;
      return Bad("^ and $ cannot be repeated");
    }
    if (Eat("+")) return Bad("possessive repetitions are not supported");
    Eat("?");
    if (Peek() == '*' || Peek() == '+' || Peek() == '?') return Bad("nothing to repeat");
    return Push({.kind = NodeKind::kRepeat, .set = {}, .parts = {atom}, .min = min, .max = max});
  }

  // {n}, {n,}, {n,m}; anything else is a brace that stands for itself.
  Result<bool> Counts(int& min, int& max) {
    const size_t begin = at_;
    Eat("{");
    const auto number = [&]() -> std::optional<int> {
      int value = 0;
      const size_t first = at_;
      while (Peek() >= '0' && Peek() <= '9') {
        value = std::min(value * 10 + static_cast<int>(Take() - '0'), kMaxRepeats + 1);
      }
      if (at_ == first) return std::nullopt;
      return value;
    };
    const std::optional<int> low = number();
    const bool comma = Eat(",");
    const std::optional<int> high = comma ? number() : low;
    if (!Eat("}") || !low) {
      at_ = begin;
      return false;
    }
    min = *low;
    max = high.value_or(kUnbounded);
    if (min > kMaxRepeats || max > kMaxRepeats) {
      return Bad("more than {} repetitions", kMaxRepeats);
    }
    if (max != kUnbounded && max < min) return Bad("repeated from {} to {} times", min, max);
    return true;
  }

  Result<uint32_t> Atom(int depth) {
    const char32_t c = Peek();
    switch (c) {
      case '(':
        return Group(depth);
      case '[':
        return Class();
      case '.':
        Take();
        return PushSet(LineEnds().Complement());
      case '^':
        Take();
        return Push({.kind = NodeKind::kBegin, .set = {}, .parts = {}});
      case '$':
        Take();
        return Push({.kind = NodeKind::kEnd, .set = {}, .parts = {}});
      case '*':
      case '+':
      case '?':
        return Bad("nothing to repeat");
      case '\\': {
        NIBBLE_TRY(CodePointSet set, Escape(false));
        return PushSet(std::move(set));
      }
      case '{': {
        // A brace that counts has something before it.
        int min = 0;
        int max = 0;
        NIBBLE_TRY(const bool counted, Counts(min, max));
        if (counted) return Bad("nothing to repeat");
        break;
      }
      default:
        break;
    }
    Take();
    CodePointSet set;
    set.Add(c);
    return PushSet(std::move(set));
  }

  Result<uint32_t> Group(int depth) {
    Take();
    if (Eat("?")) {
      if (Eat("=") || Eat("!")) return Bad("looking ahead is not supported");
      if (Eat("<=") || Eat("<!")) return Bad("looking behind is not supported");
      if (Eat(">")) return Bad("atomic groups are not supported");
      if (Eat("P=")) return Bad("references to groups are not supported");
      if (Eat("P<") || Eat("<")) {
        const size_t end = text_.find('>', at_);
        if (end == std::string_view::npos) return Bad("the name of a group has no end");
        at_ = end + 1;
      } else if (!Eat(":")) {
        return Bad("groups of this kind (flags, comments, conditions) are not supported");
      }
    }
    NIBBLE_TRY(const uint32_t inside, Choice(depth + 1));
    if (!Eat(")")) return Bad("a group has no end");
    return inside;
  }

  Result<char32_t> Hex(int least, int most) {
    char32_t value = 0;
    int digits = 0;
    while (digits < most) {
      const char32_t c = Peek();
      int digit = 0;
      if (c >= '0' && c <= '9') {
        digit = static_cast<int>(c - '0');
      } else if (c >= 'a' && c <= 'f') {
        digit = static_cast<int>(c - 'a') + 10;
      } else if (c >= 'A' && c <= 'F') {
        digit = static_cast<int>(c - 'A') + 10;
      } else {
        break;
      }
      value = value * 16 + static_cast<char32_t>(digit);
      ++digits;
      Take();
    }
    if (digits < least || value > kLastCodePoint) return Bad("expected a character's number");
    return value;
  }

  Result<CodePointSet> Property(bool negated) {
    if (!Eat("{")) return Bad("expected {{ behind \\p");
    const size_t end = text_.find('}', at_);
    if (end == std::string_view::npos) return Bad("a property's name has no end");
    std::string_view name = text_.substr(at_, end - at_);
    for (const std::string_view before : {"General_Category=", "gc="}) {
      if (name.starts_with(before)) name.remove_prefix(before.size());
    }
    const CodePointSet& set = UnicodeCategory(name);
    if (set.empty()) {
      return Bad("\\p{{{}}} is not supported: general categories are", name.substr(0, 40));
    }
    at_ = end + 1;
    return negated ? set.Complement() : set;
  }

  // At a backslash.
  Result<CodePointSet> Escape(bool in_class) {
    Take();
    if (at_ >= text_.size()) return Bad("nothing behind the last \\");
    const char32_t c = Take();
    const auto one = [](char32_t code) {
      CodePointSet set;
      set.Add(code);
      return set;
    };
    switch (c) {
      case 'd':
        return Digits();
      case 'D':
        return Digits().Complement();
      case 'w':
        return Words();
      case 'W':
        return Words().Complement();
      case 's':
        return Spaces();
      case 'S':
        return Spaces().Complement();
      case 'p':
        return Property(false);
      case 'P':
        return Property(true);
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 't':
        return one('\t');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case '0':
        if (Peek() >= '0' && Peek() <= '9') return Bad("octal escapes are not supported");
        return one(0);
      case 'x': {
        NIBBLE_TRY(const char32_t code, Hex(2, 2));
        return one(code);
      }
      case 'u':
        return UnicodeEscape();
      case 'c': {
        const char32_t letter = Peek();
        if ((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z')) {
          Take();
          return one(letter % 32);
        }
        return Bad("expected a letter behind \\c");
      }
      case 'b':
        if (in_class) return one('\b');
        [[fallthrough]];
      case 'B':
        return Bad("borders of words (\\b, \\B) are not supported");
      default:
        break;
    }
    if (c >= '1' && c <= '9') return Bad("references to groups are not supported");
    if (IsAsciiPunctuationChar(c) || c == ' ' || c >= 0x80) return one(c);
    return Bad("\\{} is not supported", c < 0x80 ? static_cast<char>(c) : '?');
  }

  Result<CodePointSet> UnicodeEscape() {
    CodePointSet set;
    if (Eat("{")) {
      NIBBLE_TRY(const char32_t code, Hex(1, 6));
      if (!Eat("}")) return Bad("expected }} behind a character's number");
      set.Add(code);
      return set;
    }
    NIBBLE_TRY(char32_t code, Hex(4, 4));
    if (code >= 0xD800 && code < 0xDC00 && Eat("\\u")) {
      NIBBLE_TRY(const char32_t low, Hex(4, 4));
      if (low < 0xDC00 || low > 0xDFFF) return Bad("half a surrogate pair");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    set.Add(code);
    return set;
  }

  Result<uint32_t> Class() {
    Take();
    const bool negated = Eat("^");
    CodePointSet set;
    for (bool first = true; first || Peek() != ']'; first = false) {
      if (at_ >= text_.size()) return Bad("a class has no end");
      if (first && Peek() == ']') break;  // as in ECMA: [] matches nothing
      NIBBLE_TRY(const CodePointSet low, ClassItem());
      const bool range = Peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']';
      if (!range) {
        set.Add(low);
        continue;
      }
      Take();
      NIBBLE_TRY(const CodePointSet high, ClassItem());
      const auto& a = low.Ranges();
      const auto& b = high.Ranges();
      if (a.size() != 1 || b.size() != 1 || a[0].low != a[0].high || b[0].low != b[0].high) {
        return Bad("a range between classes");
      }
      if (b[0].low < a[0].low) return Bad("a range ends before it begins");
      set.Add(a[0].low, b[0].low);
    }
    Take();
    return PushSet(negated ? set.Complement() : set);
  }

  Result<CodePointSet> ClassItem() {
    if (at_ >= text_.size()) return Bad("a class has no end");
    if (Peek() == '\\') return Escape(true);
    if (text_.substr(at_).starts_with("[:")) return Bad("[:names:] are not supported");
    CodePointSet set;
    set.Add(Take());
    return set;
  }

  std::string_view text_;
  size_t at_ = 0;
  RegexTree tree_;
};

// Where a node stands: whether anything may come before or behind it.
struct AnchorPlace {
  bool at_begin = true;
  bool at_end = true;
};

Result<ExprId> Whole(const RegexTree& tree, uint32_t id, AnchorPlace place, GrammarSource& source) {
  const RegexTree::Node& node = tree.nodes[id];
  std::vector<ExprId> parts;
  switch (node.kind) {
    case NodeKind::kChars:
      return source.Chars(node.set);
    case NodeKind::kBegin:
      if (!place.at_begin) return BadInput("^ is supported at the beginning only");
      return source.Empty();
    case NodeKind::kEnd:
      if (!place.at_end) return BadInput("$ is supported at the end only");
      return source.Empty();
    case NodeKind::kRepeat: {
      NIBBLE_TRY(const ExprId body, Whole(tree, node.parts[0], {false, false}, source));
      return source.Repeat(body, node.min, node.max);
    }
    case NodeKind::kSequence: {
      const auto is_text = [&](uint32_t part) {
        const NodeKind kind = tree.nodes[part].kind;
        return kind != NodeKind::kBegin && kind != NodeKind::kEnd;
      };
      const auto first = std::ranges::find_if(node.parts, is_text) - node.parts.begin();
      const auto behind = std::find_if(node.parts.rbegin(), node.parts.rend(), is_text).base();
      const ptrdiff_t last = behind - node.parts.begin() - 1;  // -1: no text at all
      for (ptrdiff_t i = 0; i < std::ssize(node.parts); ++i) {
        const AnchorPlace inside{place.at_begin && i <= first, place.at_end && i >= last};
        NIBBLE_TRY(const ExprId part,
                   Whole(tree, node.parts[static_cast<size_t>(i)], inside, source));
        parts.push_back(part);
      }
      return source.Sequence(parts);
    }
    case NodeKind::kChoice:
      break;
  }
  for (const uint32_t part : node.parts) {
    NIBBLE_TRY(const ExprId way, Whole(tree, part, place, source));
    parts.push_back(way);
  }
  return source.Choice(parts);
}

}  // namespace

Result<RegexTree> ParseRegex(std::string_view pattern) { return RegexParser(pattern).Parse(); }

Result<ExprId> WholeMatch(const RegexTree& tree, GrammarSource& source) {
  return Whole(tree, tree.root, {}, source);
}

}  // namespace nibble::grammar
