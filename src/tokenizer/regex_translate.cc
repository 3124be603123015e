// From Oniguruma's and Rust's spelling of expressions to PCRE2's. What differs in the expressions
// of tokenizers: what \s, \w, \d and \h mean, script names, sets inside sets with &&, {n,m}+, and
// (?m).
#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <utility>

#include "tokenizer/regex.h"

namespace nibble {
namespace {

// PCRE2's own \s has U+180E too, its \w lacks marks and has all numbers.
constexpr std::string_view kSpace =
    "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
    "\\x{205f}\\x{3000}";
constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
constexpr std::string_view kHexDigit = "0-9a-fA-F";
constexpr std::string_view kPunctuation = "\\p{P}$+<=>^`|~";

// Long names of what PCRE2 knows by its short name only, and Oniguruma's POSIX names.
constexpr std::array<std::pair<std::string_view, std::string_view>, 50> kNamedSets = {{
    {"letter", "\\p{L}"},
    {"casedletter", "\\p{Lu}\\p{Ll}\\p{Lt}"},
    {"uppercaseletter", "\\p{Lu}"},
    {"lowercaseletter", "\\p{Ll}"},
    {"titlecaseletter", "\\p{Lt}"},
    {"modifierletter", "\\p{Lm}"},
    {"otherletter", "\\p{Lo}"},
    {"mark", "\\p{M}"},
    {"nonspacingmark", "\\p{Mn}"},
    {"spacingmark", "\\p{Mc}"},
    {"enclosingmark", "\\p{Me}"},
    {"number", "\\p{N}"},
    {"decimalnumber", "\\p{Nd}"},
    {"letternumber", "\\p{Nl}"},
    {"othernumber", "\\p{No}"},
    {"symbol", "\\p{S}"},
    {"mathsymbol", "\\p{Sm}"},
    {"currencysymbol", "\\p{Sc}"},
    {"modifiersymbol", "\\p{Sk}"},
    {"othersymbol", "\\p{So}"},
    {"punctuation", "\\p{P}"},
    {"connectorpunctuation", "\\p{Pc}"},
    {"dashpunctuation", "\\p{Pd}"},
    {"openpunctuation", "\\p{Ps}"},
    {"closepunctuation", "\\p{Pe}"},
    {"initialpunctuation", "\\p{Pi}"},
    {"finalpunctuation", "\\p{Pf}"},
    {"otherpunctuation", "\\p{Po}"},
    {"separator", "\\p{Z}"},
    {"spaceseparator", "\\p{Zs}"},
    {"lineseparator", "\\p{Zl}"},
    {"paragraphseparator", "\\p{Zp}"},
    {"other", "\\p{C}"},
    {"control", "\\p{Cc}"},
    {"cntrl", "\\p{Cc}"},
    {"format", "\\p{Cf}"},
    {"unassigned", "\\p{Cn}"},
    {"privateuse", "\\p{Co}"},
    {"alpha", "\\p{Alphabetic}"},
    {"alnum", "\\p{Alphabetic}\\p{Nd}"},
    {"upper", "\\p{Uppercase}"},
    {"lower", "\\p{Lowercase}"},
    {"digit", "\\p{Nd}"},
    {"xdigit", kHexDigit},
    {"word", kWord},
    {"space", kSpace},
    {"whitespace", kSpace},
    {"blank", "\\p{Zs}\\x09"},
    {"punct", kPunctuation},
    {"ascii", "\\x00-\\x7f"},
}};

constexpr std::array<std::string_view, 20> kBooleanProperties = {"alphabetic",
                                                                 "uppercase",
                                                                 "lowercase",
                                                                 "emoji",
                                                                 "emojipresentation",
                                                                 "emojimodifier",
                                                                 "emojimodifierbase",
                                                                 "emojicomponent",
                                                                 "extendedpictographic",
                                                                 "ideographic",
                                                                 "hexdigit",
                                                                 "asciihexdigit",
                                                                 "dash",
                                                                 "diacritic",
                                                                 "math",
                                                                 "idstart",
                                                                 "idcontinue",
                                                                 "xidstart",
                                                                 "xidcontinue",
                                                                 "unifiedideograph"};

// What goes between the brackets of a class, and whether it is the complement.
struct ClassItem {
  std::string body;
  bool negated = false;
};

class Translator {
 public:
  Translator(std::string_view in, RegexDialect dialect) : in_(in), dialect_(dialect) {}

  Result<std::string> Run() {
    while (pos_ < in_.size()) NIBBLE_RETURN_IF_ERROR(Step());
    return std::move(out_);
  }

 private:
  bool At(std::string_view text) const { return in_.substr(pos_).starts_with(text); }

  Status Step() {
    const char c = in_[pos_];
    if (c == '\\') return Escape();
    if (c == '[') {
      atom_ = out_.size();
      ++pos_;
      NIBBLE_TRY(const std::string set, Class(0));
      out_ += set;
      return {};
    }
    if (c == '(') {
      groups_.push_back(out_.size());
      return OpenGroup();
    }
    if (c == ')') {
      atom_ = groups_.empty() ? out_.size() : groups_.back();
      if (!groups_.empty()) groups_.pop_back();
    } else if (c == '{' && Bounds()) {
      return {};
    } else if (c != '*' && c != '+' && c != '?') {
      atom_ = out_.size();
    }
    out_ += c;
    ++pos_;
    // The bytes behind a lead byte belong to the same atom.
    while (pos_ < in_.size() && (static_cast<uint8_t>(in_[pos_]) & 0xC0) == 0x80) {
      out_ += in_[pos_++];
    }
    return {};
  }

  // {n,m}; in Ruby's syntax a + behind it repeats the repetition, in Rust's it is possessive.
  bool Bounds() {
    size_t end = pos_ + 1;
    while (end < in_.size() && (std::isdigit(static_cast<uint8_t>(in_[end])) || in_[end] == ',')) {
      ++end;
    }
    if (end >= in_.size() || in_[end] != '}' || end == pos_ + 1) return false;
    std::string bounds(in_.substr(pos_, end + 1 - pos_));
    if (bounds.starts_with("{,")) bounds.insert(1, "0");
    out_ += bounds;
    pos_ = end + 1;
    if (dialect_ == RegexDialect::kOniguruma && At("+")) {
      out_.insert(atom_, "(?:");
      out_ += ")+";
      ++pos_;
    }
    return true;
  }

  // Ruby's (?m) lets . match a newline: PCRE2's (?s).
  Status OpenGroup() {
    out_ += '(';
    ++pos_;
    if (!At("?")) return {};
    size_t end = pos_ + 1;
    while (end < in_.size() &&
           std::string_view("imsxu-").find(in_[end]) != std::string_view::npos) {
      ++end;
    }
    if (end >= in_.size() || end == pos_ + 1 || (in_[end] != ':' && in_[end] != ')')) return {};
    for (size_t i = pos_; i < end; ++i) {
      if (in_[i] == 'u') continue;
      out_ += in_[i] == 'm' && dialect_ == RegexDialect::kOniguruma ? 's' : in_[i];
    }
    pos_ = end;
    if (in_[end] == ')') groups_.pop_back();
    out_ += in_[pos_++];
    return {};
  }

  Status Escape() {
    atom_ = out_.size();
    if (pos_ + 1 >= in_.size()) return BadInput("an expression ends in a backslash");
    NIBBLE_TRY(const std::optional<ClassItem> item, ReadEscape());
    if (item) {
      out_ += item->negated ? "[^" : "[";
      out_ += item->body + "]";
    } else {
      out_ += std::exchange(raw_, {});
    }
    return {};
  }

  // Reads one escape: a set, or (nothing) text that means the same in PCRE2, in raw_.
  Result<std::optional<ClassItem>> ReadEscape() {
    const char c = in_[pos_ + 1];
    pos_ += 2;
    switch (c) {
      case 's':
        return ClassItem{std::string(kSpace), false};
      case 'S':
        return ClassItem{std::string(kSpace), true};
      case 'w':
        return ClassItem{std::string(kWord), false};
      case 'W':
        return ClassItem{std::string(kWord), true};
      case 'd':
        return ClassItem{"\\p{Nd}", false};
      case 'D':
        return ClassItem{"\\p{Nd}", true};
      case 'p':
      case 'P':
        return Property(c == 'P');
      case 'h':
      case 'H':
        if (dialect_ == RegexDialect::kOniguruma)
          return ClassItem{std::string(kHexDigit), c == 'H'};
        break;
      case 'u':
        if (pos_ + 4 <= in_.size()) {
          raw_ = "\\x{" + std::string(in_.substr(pos_, 4)) + "}";
          pos_ += 4;
          return std::nullopt;
        }
        break;
      default:
        break;
    }
    // PCRE2 refuses a backslash before most ASCII letters it does not know; others are themselves.
    raw_ = {'\\', c};
    if (static_cast<uint8_t>(c) >= 0x80) raw_ = {c};
    return std::nullopt;
  }

  Result<std::optional<ClassItem>> Property(bool negated) {
    if (pos_ >= in_.size()) return BadInput("an expression ends in \\p");
    std::string_view name;
    if (in_[pos_] == '{') {
      const size_t end = in_.find('}', pos_);
      if (end == std::string_view::npos) return BadInput("an expression has \\p{{ without }}");
      name = in_.substr(pos_ + 1, end - pos_ - 1);
      pos_ = end + 1;
    } else {
      name = in_.substr(pos_++, 1);
    }
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    if (const size_t equals = name.find('='); equals != std::string_view::npos) {
      const std::string_view key = name.substr(0, equals);
      name.remove_prefix(equals + 1);
      if (key == "scx" || key == "Script_Extensions") {
        return ClassItem{"\\p{scx:" + std::string(name) + "}", negated};
      }
    }
    return ClassItem{PropertySet(name), negated};
  }

  static std::string PropertySet(std::string_view name) {
    if (name.size() <= 2 || name == "Any") return "\\p{" + std::string(name) + "}";
    std::string plain;
    for (const char c : name) {
      if (c != '_' && c != ' ' && c != '-') {
        plain += static_cast<char>(std::tolower(static_cast<uint8_t>(c)));
      }
    }
    for (const auto& [key, set] : kNamedSets) {
      if (key == plain) return std::string(set);
    }
    if (std::ranges::find(kBooleanProperties, plain) != kBooleanProperties.end()) {
      return "\\p{" + plain + "}";
    }
    return "\\p{sc:" + plain + "}";  // not script extensions, which is PCRE2's plain \p{Han}
  }

  // A set after its '['; returns an expression for one character.
  Result<std::string> Class(int depth) {
    if (depth > 8) return BadInput("an expression has sets nested more than 8 deep");
    bool negated = false;
    if (At("^")) {
      negated = true;
      ++pos_;
    }
    std::string body;                     // of the part being read
    std::vector<std::string> conditions;  // expressions for one character: what nests, && parts
    std::vector<std::string> alternatives;
    bool first = true;
    const auto close_part = [&] {
      std::string part = body.empty() ? "" : "[" + body + "]";
      for (const std::string& a : alternatives) part += (part.empty() ? "" : "|") + a;
      conditions.push_back(alternatives.empty() ? part : "(?:" + part + ")");
      body.clear();
      alternatives.clear();
    };
    while (true) {
      if (pos_ >= in_.size()) return BadInput("an expression has a set without its ']'");
      if (in_[pos_] == ']' && !first) break;
      first = false;
      if (At("&&")) {
        pos_ += 2;
        close_part();
      } else if (At("[:")) {
        const size_t end = in_.find(":]", pos_);
        if (end == std::string_view::npos) return BadInput("an expression has '[:' without ':]'");
        std::string_view name = in_.substr(pos_ + 2, end - pos_ - 2);
        const bool not_in = name.starts_with('^');
        if (not_in) name.remove_prefix(1);
        AddItem({PropertySet(name), not_in}, body, alternatives);
        pos_ = end + 2;
      } else if (in_[pos_] == '[') {
        ++pos_;
        NIBBLE_TRY(std::string inner, Class(depth + 1));
        alternatives.push_back(std::move(inner));
      } else if (in_[pos_] == '\\') {
        if (pos_ + 1 >= in_.size()) return BadInput("an expression ends in a backslash");
        NIBBLE_TRY(const std::optional<ClassItem> item, ReadEscape());
        if (item) {
          AddItem(*item, body, alternatives);
        } else {
          body += std::exchange(raw_, {});
        }
      } else {
        if (in_[pos_] == '[' || in_[pos_] == ']') body += '\\';
        body += in_[pos_++];
      }
    }
    ++pos_;
    close_part();
    if (conditions.size() == 1) {
      std::string& only = conditions[0];
      if (!negated) return only.empty() ? "(?!)" : only;
      if (only.empty()) return std::string("[\\s\\S]");
      if (only.front() == '[') return "[^" + only.substr(1);
      return "(?:(?!" + only + ")[\\s\\S])";
    }
    std::string all;
    for (size_t i = 0; i + 1 < conditions.size(); ++i) all += "(?=" + conditions[i] + ")";
    all += conditions.back();
    return negated ? "(?:(?!" + all + ")[\\s\\S])" : "(?:" + all + ")";
  }

  static void AddItem(const ClassItem& item, std::string& body,
                      std::vector<std::string>& alternatives) {
    if (!item.negated) {
      body += item.body;
    } else if (item.body.starts_with("\\p{") && item.body.find('}') == item.body.size() - 1) {
      body += "\\P" + item.body.substr(2);
    } else {
      alternatives.push_back("[^" + item.body + "]");
    }
  }

  std::string_view in_;
  RegexDialect dialect_;
  size_t pos_ = 0;
  size_t atom_ = 0;  // where in out_ the last atom begins
  std::vector<size_t> groups_;
  std::string out_;
  std::string raw_;
};

}  // namespace

Result<std::string> TranslateRegex(std::string_view pattern, RegexDialect dialect) {
  return Translator(pattern, dialect).Run();
}

}  // namespace nibble
