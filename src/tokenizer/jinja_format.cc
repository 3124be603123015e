// Python's two ways to format text: "%05.2f" % x and "{:05.2f}".format(x).
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tokenizer/jinja_interpreter.h"
#include "tokenizer/jinja_text.h"

namespace nibble::jinja {
namespace {

constexpr int64_t kMaxWidth = 1'000'000;  // of a field, in characters
constexpr int kMaxPrecision = 1000;

std::string Padded(std::string text, int64_t width, char align, std::string_view fill) {
  const int64_t missing = width - int64_t(CountCodePoints(text));
  if (missing <= 0) return text;
  const int64_t left = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += text;
  for (int64_t i = left; i < missing; ++i) out += fill;
  return out;
}

std::string FirstCodePoints(const std::string& text, int64_t count) {
  return text.substr(0, ByteOffset(text, size_t(count)));
}

std::string ToBase(uint64_t value, unsigned base, bool upper) {
  const char* digits = upper ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string out;
  do {
    out += digits[value % base];
    value /= base;
  } while (value);
  std::reverse(out.begin(), out.end());
  return out;
}

uint64_t Magnitude(int64_t value) { return value < 0 ? 0 - uint64_t(value) : uint64_t(value); }

// A number in parts, so that padding with zeros can go behind the sign and prefix.
struct NumberText {
  std::string sign, prefix, digits;
};

NumberText IntegerText(int64_t value, char type, bool alternate) {
  NumberText out;
  out.sign = value < 0 ? "-" : "";
  const bool upper = type == 'X';
  const unsigned base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
  out.digits = ToBase(Magnitude(value), base, upper);
  if (alternate && base != 10) out.prefix = {'0', type};
  return out;
}

NumberText FloatText(double value, char type, int precision, bool alternate) {
  NumberText out;
  out.sign = std::signbit(value) && !std::isnan(value) ? "-" : "";
  out.digits = FormatFloat(std::fabs(value), type, precision, alternate);
  return out;
}

int64_t IntegerOf(const Value& value, char type) {
  if (value.Is(Kind::kFloat) && (type == 'd' || type == 'i' || type == 'u')) {
    const double number = value.float_value();
    if (!std::isfinite(number)) Raise("cannot convert float to integer");
    if (std::fabs(number) >= 9.2e18) Raise("integer result does not fit 64 bits");
    return int64_t(number);
  }
  if (value.IsUndefined()) throw TemplateError(value.UndefinedMessage());
  if (!value.IsIntegral()) {
    Raise("%{} format: a number is required, not {}", type, TypeName(value));
  }
  return value.int_value();
}

double FloatOf(const Value& value) {
  if (value.IsUndefined()) throw TemplateError(value.UndefinedMessage());
  if (!value.IsNumber()) Raise("must be real number, not {}", TypeName(value));
  return value.float_value();
}

// ---- "text" % args

class PercentFormatter {
 public:
  PercentFormatter(Interpreter& in, const std::string& text, const Value& args)
      : in_(in), text_(text), args_(args) {}

  std::string Run() {
    for (size_t at = 0; at < text_.size();) {
      const size_t percent = text_.find('%', at);
      out_ += text_.substr(at, percent - at);
      if (percent == text_.npos) break;
      at = Directive(percent + 1);
      in_.CheckStringSize(out_.size());
    }
    // Whatever has __getitem__, but tuples and strings.
    const bool is_mapping = args_.Is(Kind::kDict) || args_.Is(Kind::kList) ||
                            args_.Is(Kind::kRange) || args_.IsUndefined();
    const size_t available = args_.Is(Kind::kTuple) ? args_.items().size() : 1;
    if (!is_mapping && used_ < available) {
      Raise("not all arguments converted during string formatting");
    }
    return std::move(out_);
  }

 private:
  const Value& NextArgument() {
    if (args_.Is(Kind::kTuple)) {
      if (used_ >= args_.items().size()) Raise("not enough arguments for format string");
      return args_.items()[used_++];
    }
    if (used_++ > 0) Raise("not enough arguments for format string");
    return args_;
  }

  char Peek(size_t at) const {
    if (at >= text_.size()) Raise("incomplete format");
    return text_[at];
  }

  int64_t Number(size_t& at) {
    if (Peek(at) == '*') {
      ++at;
      return RequireInt(NextArgument());
    }
    int64_t value = 0;
    for (; Peek(at) >= '0' && Peek(at) <= '9'; ++at) {
      value = std::min<int64_t>(value * 10 + (text_[at] - '0'), kMaxWidth + 1);
    }
    return value;
  }

  // Reads the directive behind a percent sign; the position behind it.
  size_t Directive(size_t at) {
    Value keyed;
    bool has_key = false;
    if (Peek(at) == '(') {
      const size_t end = text_.find(')', at);
      if (end == text_.npos) Raise("incomplete format key");
      if (!args_.Is(Kind::kDict)) Raise("format requires a mapping");
      const std::string key = text_.substr(at + 1, end - at - 1);
      const Value* found = args_.dict().Find(key);
      if (!found) Raise("{}", StringRepr(key));
      keyed = *found;
      has_key = true;
      at = end + 1;
    }
    std::string flags;
    while (std::string_view("#0- +").find(Peek(at)) != std::string_view::npos) flags += text_[at++];
    int64_t width = Number(at);
    if (width < 0) {
      flags += '-';
      width = -width;
    }
    int64_t precision = -1;
    if (Peek(at) == '.') {
      ++at;
      precision = std::max<int64_t>(Number(at), 0);
    }
    if (width > kMaxWidth || precision > kMaxPrecision) Raise("a format is too wide");
    while (std::string_view("hlL").find(Peek(at)) != std::string_view::npos) ++at;
    const char type = Peek(at);
    if (type == '%') {
      out_ += '%';
      return at + 1;
    }
    Convert(has_key ? keyed : NextArgument(), type, flags, width, int(precision));
    return at + 1;
  }

  void Convert(const Value& value, char type, const std::string& flags, int64_t width,
               int precision) {
    const auto has = [&](char flag) { return flags.find(flag) != flags.npos; };
    NumberText number;
    switch (type) {
      case 's':
      case 'r':
      case 'a': {
        std::string text = type == 's' ? in_.Str(value) : ToRepr(value, in_.max_string());
        if (precision >= 0) text = FirstCodePoints(text, precision);
        out_ += Padded(std::move(text), width, has('-') ? '<' : '>', " ");
        return;
      }
      case 'c': {
        std::string text;
        if (value.IsIntegral()) {
          if (value.int_value() < 0 || value.int_value() > 0x10FFFF) {
            Raise("%c arg not in range(0x110000)");
          }
          AppendCodePoint(text, uint32_t(value.int_value()));
        } else if (value.IsString() && value.string().Length() == 1) {
          text = value.str();
        } else {
          Raise("%c requires int or char");
        }
        out_ += Padded(std::move(text), width, has('-') ? '<' : '>', " ");
        return;
      }
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        number = IntegerText(IntegerOf(value, type), type, has('#'));
        if (int(number.digits.size()) < precision) {
          number.digits.insert(0, size_t(precision) - number.digits.size(), '0');
        }
        break;
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        number = FloatText(FloatOf(value), type, precision < 0 ? 6 : precision, has('#'));
        break;
      default:
        Raise("unsupported format character '{}'", type);
    }
    if (number.sign.empty()) number.sign = has('+') ? "+" : has(' ') ? " " : "";
    std::string text = number.sign + number.prefix + number.digits;
    if (has('0') && !has('-') && int64_t(text.size()) < width) {
      text = number.sign + number.prefix + std::string(size_t(width) - text.size(), '0') +
             number.digits;
    }
    out_ += Padded(std::move(text), width, has('-') ? '<' : '>', " ");
  }

  Interpreter& in_;
  const std::string& text_;
  const Value& args_;
  size_t used_ = 0;
  std::string out_;
};

// ---- format specifications

struct Spec {
  std::string fill = " ";
  char align = 0;
  char sign = '-';
  bool alternate = false;
  bool zero = false;
  int64_t width = 0;
  char grouping = 0;
  int precision = -1;
  char type = 0;
};

Spec ParseSpec(const std::string& text) {
  Spec spec;
  size_t at = 0;
  const auto peek = [&](size_t i) { return i < text.size() ? text[i] : '\0'; };
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '=' || c == '^'; };
  size_t behind = 0;
  if (!text.empty()) NextCodePoint(text, behind);
  if (behind > 0 && is_align(peek(behind))) {
    spec.fill = text.substr(0, behind);
    spec.align = text[behind];
    at = behind + 1;
  } else if (is_align(peek(0))) {
    spec.align = text[at++];
  }
  if (peek(at) == '+' || peek(at) == '-' || peek(at) == ' ') spec.sign = text[at++];
  if (peek(at) == '#') {
    spec.alternate = true;
    ++at;
  }
  if (peek(at) == '0') {
    spec.zero = true;
    ++at;
  }
  const auto number = [&](int64_t limit) {
    int64_t value = 0;
    for (; peek(at) >= '0' && peek(at) <= '9'; ++at) {
      value = value * 10 + (text[at] - '0');
      if (value > limit) Raise("a format is too wide");
    }
    return value;
  };
  spec.width = number(kMaxWidth);
  if (peek(at) == ',' || peek(at) == '_') spec.grouping = text[at++];
  if (peek(at) == '.') {
    ++at;
    if (peek(at) < '0' || peek(at) > '9') Raise("Format specifier missing precision");
    spec.precision = int(number(kMaxPrecision));
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) Raise("Invalid format specifier");
  return spec;
}

std::string Grouped(const std::string& digits, char separator, size_t every) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  const size_t end = digits.find_first_of(".e") == digits.npos
                         ? whole
                         : std::min(whole, digits.find_first_of(".e"));
  std::string out;
  for (size_t i = 0; i < end; ++i) {
    if (i && (end - i) % every == 0) out += separator;
    out += digits[i];
  }
  return out + digits.substr(end);
}

std::string Laid(NumberText number, const Spec& spec, bool is_float) {
  if (number.sign.empty() && spec.sign != '-') number.sign = spec.sign;
  const bool hex = spec.type == 'x' || spec.type == 'X' || spec.type == 'o' || spec.type == 'b';
  std::string digits = number.digits;
  const char align = spec.align ? spec.align : spec.zero ? '=' : '>';
  const std::string fill = spec.zero && !spec.align ? "0" : spec.fill;
  const size_t every = hex && !is_float ? 4 : 3;
  if (spec.grouping) digits = Grouped(digits, spec.grouping, every);
  if (align != '=') {
    return Padded(number.sign + number.prefix + digits, spec.width, align, fill);
  }
  const int64_t room = spec.width - int64_t(number.sign.size() + number.prefix.size());
  if (spec.grouping && fill == "0") {
    std::string plain = number.digits;
    while (int64_t(digits.size()) < room) {
      plain.insert(0, 1, '0');
      digits = Grouped(plain, spec.grouping, every);
    }
  }
  return number.sign + number.prefix + Padded(digits, room, '>', fill);
}

// ---- "text".format(args)

class BraceFormatter {
 public:
  BraceFormatter(Interpreter& in, const CallArgs& args) : in_(in), args_(args) {}

  std::string Run(std::string_view text, int depth) {
    if (depth > 2) Raise("Max string recursion exceeded");
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const char c = text[at++];
      const bool doubled = at < text.size() && text[at] == c;
      if ((c == '{' || c == '}') && doubled) {
        out += c;
        ++at;
      } else if (c == '{') {
        const size_t end = FieldEnd(text, at);
        out += Field(text.substr(at, end - at), depth);
        at = end + 1;
      } else if (c == '}') {
        Raise("Single '}}' encountered in format string");
      } else {
        out += c;
      }
      in_.CheckStringSize(out.size());
    }
    return out;
  }

 private:
  static size_t FieldEnd(std::string_view text, size_t at) {
    for (int open = 1; at < text.size(); ++at) {
      if (text[at] == '{') ++open;
      if (text[at] == '}' && --open == 0) return at;
    }
    Raise("expected '}}' before end of string");
  }

  std::string Field(std::string_view field, int depth) {
    in_.Charge(1);
    size_t name_end = 0;
    for (bool in_brackets = false; name_end < field.size(); ++name_end) {
      const char c = field[name_end];
      if (c == '[') in_brackets = true;
      if (c == ']') in_brackets = false;
      if (!in_brackets && (c == '!' || c == ':')) break;
    }
    Value value = Look(field.substr(0, name_end));
    std::string_view rest = field.substr(name_end);
    if (rest.starts_with('!')) {
      if (rest.size() < 2 || (rest.size() > 2 && rest[2] != ':')) {
        Raise("expected ':' after conversion specifier");
      }
      if (rest[1] != 'r' && rest[1] != 's' && rest[1] != 'a') {
        Raise("Unknown conversion specifier '{}'", rest[1]);
      }
      value = Value::String(rest[1] == 's' ? in_.Str(value) : ToRepr(value, in_.max_string()));
      rest = rest.substr(2);
    }
    const std::string spec = rest.empty() ? "" : Run(rest.substr(1), depth + 1);
    return FormatValue(in_, value, spec);
  }

  Value Look(std::string_view name) {
    size_t end = std::min(name.find_first_of(".["), name.size());
    const std::string first(name.substr(0, end));
    Value value = First(first);
    while (end < name.size()) {
      if (name[end] == '.') {
        const size_t next = std::min(name.find_first_of(".[", end + 1), name.size());
        if (next == end + 1) Raise("Empty attribute in format string");
        value = in_.GetAttribute(value, std::string(name.substr(end + 1, next - end - 1)));
        end = next;
      } else if (name[end] == '[') {
        const size_t close = name.find(']', end);
        if (close == name.npos) Raise("Missing ']' in format string");
        const std::string key(name.substr(end + 1, close - end - 1));
        if (key.empty()) Raise("Empty attribute in format string");
        value = in_.GetItem(value, IsNumber(key) ? Value::Int(std::stol(key)) : Value::String(key));
        end = close + 1;
      } else {
        Raise("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  static bool IsNumber(const std::string& text) {
    return !text.empty() && text.size() < 18 &&
           std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  }

  Value First(const std::string& name) {
    if (name.empty() || IsNumber(name)) {
      if (name.empty() ? explicit_ : automatic_ > 0) {
        Raise("cannot switch between automatic field numbering and manual field specification");
      }
      explicit_ |= !name.empty();
      const size_t index = name.empty() ? automatic_++ : size_t(std::stol(name));
      if (index >= args_.positional.size()) {
        Raise("Replacement index {} out of range for positional args tuple", index);
      }
      return args_.positional[index];
    }
    const Value* value = args_.FindKeyword(name);
    if (!value) Raise("{}", StringRepr(name));
    return *value;
  }

  Interpreter& in_;
  const CallArgs& args_;
  size_t automatic_ = 0;
  bool explicit_ = false;
};

}  // namespace

std::string FormatFloat(double value, char type, int precision, bool alternate) {
  const bool upper = type == 'E' || type == 'F' || type == 'G';
  if (std::isnan(value)) return upper ? "NAN" : "nan";
  if (std::isinf(value)) return std::string(value < 0 ? "-" : "") + (upper ? "INF" : "inf");
  const std::string format = std::string("%") + (alternate ? "#" : "") + ".*" + type;
  char buffer[1400];  // 309 digits, a point and 1000 behind it
  const int n = std::snprintf(buffer, sizeof buffer, format.c_str(), precision, value);
  return std::string(buffer, size_t(std::clamp(n, 0, int(sizeof buffer) - 1)));
}

std::string FormatValue(Interpreter& in, const Value& value, const std::string& spec_text) {
  if (spec_text.empty()) return in.Str(value);
  if (value.IsUndefined() || (!value.IsNumber() && !value.IsString())) {
    Raise("unsupported format string passed to {}.__format__", TypeName(value));
  }
  Spec spec = ParseSpec(spec_text);
  if (value.IsString()) {
    if (spec.type && spec.type != 's') {
      Raise("Unknown format code '{}' for object of type 'str'", spec.type);
    }
    if (spec.align == '=') Raise("'=' alignment not allowed in string format specifier");
    if (spec.sign != '-' || spec.grouping) Raise("Sign not allowed in string format specifier");
    std::string text = value.str();
    if (spec.precision >= 0) text = FirstCodePoints(text, spec.precision);
    const std::string fill = spec.zero && !spec.align ? "0" : spec.fill;
    return Padded(std::move(text), spec.width, spec.align ? spec.align : '<', fill);
  }
  const char type = spec.type;
  if (value.IsIntegral() &&
      (!type || std::string_view("dxXobnc").find(type) != std::string_view::npos)) {
    if (spec.precision >= 0) Raise("Precision not allowed in integer format specifier");
    if (type == 'c') {
      std::string text;
      if (value.int_value() < 0 || value.int_value() > 0x10FFFF) {
        Raise("%c arg not in range(0x110000)");
      }
      AppendCodePoint(text, uint32_t(value.int_value()));
      return Padded(std::move(text), spec.width, spec.align ? spec.align : '<', spec.fill);
    }
    return Laid(IntegerText(value.int_value(), type ? type : 'd', spec.alternate), spec, false);
  }
  if (type && std::string_view("eEfFgGn%").find(type) == std::string_view::npos) {
    Raise("Unknown format code '{}' for object of type '{}'", type, TypeName(value));
  }
  double number = value.float_value();
  NumberText text;
  if (type == '%') {
    text = FloatText(number * 100, 'f', spec.precision < 0 ? 6 : spec.precision, spec.alternate);
    text.digits += '%';
  } else if (!type) {
    text.sign = std::signbit(number) && !std::isnan(number) ? "-" : "";
    if (spec.precision < 0) {
      text.digits = FloatRepr(std::fabs(number));
    } else {
      // As 'g', but with a digit behind the point where there is no exponent.
      text = FloatText(number, 'g', std::max(spec.precision, 1), spec.alternate);
      if (text.digits.find_first_of(".en") == text.digits.npos) text.digits += ".0";
    }
  } else {
    text = FloatText(number, type == 'n' ? 'g' : type, spec.precision < 0 ? 6 : spec.precision,
                     spec.alternate);
  }
  return Laid(std::move(text), spec, true);
}

std::string PercentFormat(Interpreter& in, const std::string& text, const Value& args) {
  return PercentFormatter(in, text, args).Run();
}

std::string BraceFormat(Interpreter& in, const std::string& text, const CallArgs& args) {
  return BraceFormatter(in, args).Run(text, 1);
}

}  // namespace nibble::jinja
