// Filters of strings and numbers.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/text.h"
#include "tokenizer/jinja_filters.h"
#include "tokenizer/jinja_str_methods.h"
#include "tokenizer/jinja_text.h"

namespace nibble::jinja {
namespace {

// markupsafe's soft_str: a string stays as it is (safe or not), all else becomes str().
Value SoftStr(Interpreter& in, const Value& value) {
  return value.IsString() ? value : Value::String(in.Str(value));
}

template <std::string (*Map)(std::string_view)>
Value MapText(Interpreter& in, const Value& input, CallArgs& args) {
  const Arguments none("filter", args, {});
  const Value text = SoftStr(in, input);
  in.Charge(int64_t(text.str().size() / 16));
  return Value::String(Map(text.str()), text.IsMarkup());
}

std::string TitleWords(std::string_view text) {
  static constexpr std::string_view kBreaks = "-({[<";
  std::string out, word;
  const auto flush = [&] {
    if (word.empty()) return;
    size_t first = 0;
    NextCodePoint(word, first);
    out += ToUpper(std::string_view(word).substr(0, first)) +
           ToLower(std::string_view(word).substr(first));
    word.clear();
  };
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const uint32_t cp = NextCodePoint(text, pos);
    const bool is_break = IsSpace(cp) || (cp < 128 && kBreaks.find(char(cp)) != kBreaks.npos);
    if (is_break) flush();
    (is_break ? out : word) += text.substr(begin, pos - begin);
  }
  flush();
  return out;
}

Value String(Interpreter& in, const Value& input, CallArgs&) { return SoftStr(in, input); }

Value Safe(Interpreter& in, const Value& input, CallArgs&) {
  return Value::String(in.Str(input), true);
}

Value Escape(Interpreter& in, const Value& input, CallArgs&) {
  return input.IsMarkup() ? input : Value::String(EscapeHtml(in.Str(input)), true);
}

Value ForceEscape(Interpreter& in, const Value& input, CallArgs&) {
  return Value::String(EscapeHtml(in.Str(input)), true);
}

Value Trim(Interpreter& in, const Value& input, CallArgs& args) {
  const Arguments bound("trim", args, {"chars"});
  const Value text = SoftStr(in, input);
  std::string_view out = text.str();
  in.Charge(int64_t(out.size() / 64));
  if (!bound.Has(0) || bound.Get(0).IsNone()) {
    out = StripRight(StripLeft(out));
  } else {
    out = StripRight(StripLeft(out, bound.Text(0)), bound.Text(0));
  }
  return Value::String(std::string(out), text.IsMarkup());
}

Value Replace(Interpreter& in, const Value& input, CallArgs& args) {
  const Arguments bound("replace", args, {"old", "new", "count"}, 2);
  const int64_t count = bound.Has(2) && !bound.Get(2).IsNone() ? bound.Int(2, -1) : -1;
  return Value::String(
      CheckedReplace(in, in.Str(input), in.Str(bound.Get(0)), in.Str(bound.Get(1)), count));
}

Value Center(Interpreter& in, const Value& input, CallArgs& args) {
  const Arguments bound("center", args, {"width"});
  return Value::String(Justified(in, SoftStr(in, input).string(), bound.Int(0, 80), '^', " "));
}

Value Indent(Interpreter& in, const Value& input, CallArgs& args) {
  const Arguments bound("indent", args, {"width", "first", "blank"});
  std::string indention;
  if (bound.Has(0) && bound.Get(0).IsString()) {
    indention = bound.Get(0).str();
  } else {
    const int64_t width = std::max<int64_t>(bound.Int(0, 4), 0);
    in.CheckStringSize(size_t(width));
    indention.assign(size_t(width), ' ');
  }
  const Value whole = Add(in, input, Value::String("\n"));
  if (!whole.IsString()) Raise("'{}' object has no attribute 'splitlines'", TypeName(whole));
  const bool blank = bound.Bool(2, false);
  const auto lines = SplitLines(whole.str(), false);
  in.CheckStringSize(whole.str().size() + lines.size() * indention.size());
  std::string out = bound.Bool(1, false) ? indention : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i) out += '\n';
    if (i && (blank || !lines[i].empty())) out += indention;
    out += lines[i];
  }
  return Value::String(std::move(out), input.IsMarkup());
}

Value Truncate(Interpreter& in, const Value& input, CallArgs& args) {
  const Arguments bound("truncate", args, {"length", "killwords", "end", "leeway"});
  const int64_t length = bound.Int(0, 255);
  const Value end = bound.GetOr(2, Value::String("..."));
  const int64_t leeway = bound.Has(3) && !bound.Get(3).IsNone() ? bound.Int(3, 5) : 5;
  const int64_t end_length = LengthOf(end);
  if (length < end_length) Raise("expected length >= {}, got {}", end_length, length);
  if (leeway < 0) Raise("expected leeway >= 0, got {}", leeway);
  if (LengthOf(input) <= length + leeway) return input;
  const Value head = SliceOf(input, Value::None(), Value::Int(length - end_length), Value::None());
  if (bound.Bool(1, false)) return Add(in, head, end);
  if (!head.IsString()) Raise("'{}' object has no attribute 'rsplit'", TypeName(head));
  const size_t space = head.str().rfind(' ');
  return Add(in, Value::String(head.str().substr(0, space), head.IsMarkup()), end);
}

Value WordCount(Interpreter& in, const Value& input, CallArgs&) {
  const std::string text = in.Str(input);
  in.Charge(int64_t(text.size() / 16));
  int64_t words = 0;
  bool in_word = false;
  for (size_t pos = 0; pos < text.size();) {
    const bool is_word = IsWord(NextCodePoint(text, pos));
    words += is_word && !in_word;
    in_word = is_word;
  }
  return Value::Int(words);
}

// Python's int(text, base); nothing where it raises ValueError.
std::optional<int64_t> ParseInt(std::string_view text, int64_t base) {
  text = StripRight(StripLeft(text));
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text = text.substr(1);
  if (text.size() > 2 && text[0] == '0') {
    const char kind = char(text[1] | 0x20);
    const int64_t prefix = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (prefix && (base == prefix || base == 0)) {
      base = prefix;
      text = text.substr(2);
      if (text.starts_with('_')) text = text.substr(1);
    }
  }
  if (base == 0) {
    if (text.size() > 1 && text[0] == '0' && text.find_first_not_of("0_") != text.npos) {
      return std::nullopt;
    }
    base = 10;
  }
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits += text[i];
    } else if (i == 0 || i + 1 == text.size() || text[i - 1] == '_') {
      return std::nullopt;
    }
  }
  if (digits.empty() || digits[0] == '-') return std::nullopt;
  if (negative) digits.insert(0, 1, '-');
  int64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto parsed = std::from_chars(digits.data(), end, value, int(base));
  if (parsed.ptr != end) return std::nullopt;
  if (parsed.ec != std::errc()) Raise("integer does not fit 64 bits: {}", digits);
  return value;
}

// Python's float(text).
std::optional<double> ParseFloat(std::string_view text) {
  text = StripRight(StripLeft(text));
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const auto digit = [&](size_t at) {
      return at < text.size() && text[at] >= '0' && text[at] <= '9';
    };
    if (c == '_') {
      if (i == 0 || !digit(i - 1) || !digit(i + 1)) return std::nullopt;
    } else {
      plain += c;
    }
  }
  const std::string lower = ToLower(plain);
  const size_t sign = !lower.empty() && (lower[0] == '-' || lower[0] == '+');
  const std::string body = lower.substr(sign);
  const bool named = body == "inf" || body == "infinity" || body == "nan";
  if (!named && (body.empty() || body.find_first_not_of("0123456789.e+-") != body.npos)) {
    return std::nullopt;
  }
  char* end = nullptr;
  const double value = std::strtod(plain.c_str(), &end);
  if (*end != 0) return std::nullopt;
  return value;
}

int64_t Truncated(double value) {
  if (std::fabs(value) >= 9.2e18) Raise("integer does not fit 64 bits");
  return int64_t(value);
}

Value ToInt(Interpreter&, const Value& input, CallArgs& args) {
  const Arguments bound("int", args, {"default", "base"});
  const Value fallback = bound.GetOr(0, Value::Int(0));
  if (input.IsIntegral()) return Value::Int(input.int_value());
  if (input.IsUndefined()) throw TemplateError(input.UndefinedMessage());
  if (input.Is(Kind::kFloat)) {
    const double value = input.float_value();
    if (std::isinf(value)) Raise("cannot convert float infinity to integer");
    return std::isnan(value) ? fallback : Value::Int(Truncated(value));
  }
  if (!input.IsString()) return fallback;
  const int64_t base = bound.Int(1, 10);
  if (base == 0 || (base >= 2 && base <= 36)) {
    if (const auto value = ParseInt(input.str(), base)) return Value::Int(*value);
  }
  const auto value = ParseFloat(input.str());
  return value && std::isfinite(*value) ? Value::Int(Truncated(*value)) : fallback;
}

Value ToFloat(Interpreter&, const Value& input, CallArgs& args) {
  const Arguments bound("float", args, {"default"});
  if (input.IsNumber()) return Value::Float(input.float_value());
  if (input.IsUndefined()) throw TemplateError(input.UndefinedMessage());
  if (input.IsString()) {
    if (const auto value = ParseFloat(input.str())) return Value::Float(*value);
  }
  return bound.GetOr(0, Value::Float(0));
}

Value Abs(Interpreter&, const Value& input, CallArgs& args) {
  const Arguments none("abs", args, {});
  if (input.Is(Kind::kFloat)) return Value::Float(std::fabs(input.float_value()));
  if (!input.IsIntegral()) Raise("bad operand type for abs(): '{}'", TypeName(input));
  return input.int_value() < 0 ? Negate(input) : Value::Int(input.int_value());
}

// round(int, -n): to the nearest multiple of 10^n, ties to the even one.
Value RoundInt(int64_t value, int64_t precision) {
  if (precision >= 0) return Value::Int(value);
  if (precision < -18) return Value::Int(0);
  int64_t unit = 1;
  for (int64_t i = 0; i > precision; --i) unit *= 10;
  int64_t quotient = value / unit, rest = value % unit;
  if (rest < 0) {
    rest += unit;
    --quotient;
  }
  const int64_t half = unit / 2;
  if (rest > half || (rest == half && (quotient & 1))) ++quotient;
  int64_t out;
  if (__builtin_mul_overflow(quotient, unit, &out)) Raise("integer does not fit 64 bits");
  return Value::Int(out);
}

double RoundFloat(double value, int64_t precision) {
  if (!std::isfinite(value) || precision > 330) return value;
  if (precision >= 0)
    return std::strtod(FormatFloat(value, 'f', int(precision), false).c_str(), nullptr);
  if (precision < -308) return std::copysign(0.0, value);
  const double unit = std::pow(10.0, double(-precision));
  return std::nearbyint(value / unit) * unit;
}

Value Round(Interpreter&, const Value& input, CallArgs& args) {
  const Arguments bound("round", args, {"precision", "method"});
  const Value method = bound.GetOr(1, Value::String("common"));
  const std::string name = method.IsString() ? method.str() : "";
  if (name != "common" && name != "ceil" && name != "floor") {
    Raise("method must be common, ceil or floor");
  }
  const int64_t precision = bound.Int(0, 0);
  if (input.IsUndefined() || !input.IsNumber()) {
    Raise("type {} doesn't define __round__ method", TypeName(input));
  }
  if (name == "common") {
    if (input.IsIntegral()) return RoundInt(input.int_value(), precision);
    return Value::Float(RoundFloat(input.float_value(), precision));
  }
  const double unit = std::pow(10.0, double(precision));
  const double scaled = input.float_value() * unit;
  if (!std::isfinite(scaled)) Raise("cannot convert float to integer");
  return Value::Float((name == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

Value Format(Interpreter& in, const Value& input, CallArgs& args) {
  if (!args.positional.empty() && !args.keyword.empty()) {
    Raise("can't handle positional and keyword arguments at the same time");
  }
  const Value text = SoftStr(in, input);
  Value values = Value::MakeTuple(args.positional);
  if (!args.keyword.empty()) {
    auto dict = std::make_shared<Dict>();
    for (const auto& [name, value] : args.keyword) dict->Set(name, value);
    values = MakeDict(std::move(dict));
  }
  return Value::String(PercentFormat(in, text.str(), values), text.IsMarkup());
}

std::string Quoted(Interpreter& in, const Value& value, bool for_query) {
  std::string out;
  for (const char c : in.Str(value)) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !for_query);
    if (plain) {
      out += c;
    } else if (c == ' ' && for_query) {
      out += '+';
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

Value UrlEncode(Interpreter& in, const Value& input, CallArgs&) {
  if (input.IsString() || !IsIterable(input)) return Value::String(Quoted(in, input, false));
  std::string out;
  const auto add = [&](const Value& key, const Value& value) {
    if (!out.empty()) out += '&';
    out += Quoted(in, key, true) + "=" + Quoted(in, value, true);
  };
  if (input.Is(Kind::kDict)) {
    for (const auto& [key, value] : input.dict().items()) add(key, value);
    return Value::String(std::move(out));
  }
  for (const Value& item : in.Collect(input)) {
    const auto pair = in.Collect(item);
    if (pair.size() != 2) Raise("urlencode needs pairs");
    add(pair[0], pair[1]);
  }
  return Value::String(std::move(out));
}

Value XmlAttr(Interpreter& in, const Value& input, CallArgs& args) {
  const Arguments bound("xmlattr", args, {"autospace"});
  if (input.IsUndefined()) throw TemplateError(input.UndefinedMessage());
  if (!input.Is(Kind::kDict)) Raise("'{}' object has no attribute 'items'", TypeName(input));
  std::string out;
  const auto escaped = [&](const Value& value) {
    return value.IsMarkup() ? value.str() : EscapeHtml(in.Str(value));
  };
  for (const auto& [key, value] : input.dict().items()) {
    if (value.IsNone() || value.IsUndefined()) continue;
    if (!key.IsString()) Raise("expected string or bytes-like object, got '{}'", TypeName(key));
    if (key.str().find_first_of(" \t\n\r\f\v/>=") != std::string::npos) {
      Raise("Invalid character in attribute name: {}", StringRepr(key.str()));
    }
    if (!out.empty()) out += ' ';
    out += escaped(key) + "=\"" + escaped(value) + "\"";
  }
  if (bound.Bool(0, true) && !out.empty()) out.insert(0, 1, ' ');
  return Value::String(std::move(out));
}

// Markup.striptags: comments and tags go, white space is folded, the five entities are decoded.
Value StripTags(Interpreter& in, const Value& input, CallArgs&) {
  const std::string text = in.Str(input);
  std::string bare;
  for (size_t at = 0; at < text.size();) {
    const size_t open = text.find('<', at);
    const bool comment = open != text.npos && text.compare(open, 4, "<!--") == 0;
    const size_t close = open == text.npos ? text.npos : text.find(comment ? "-->" : ">", open);
    if (close == text.npos) {
      bare += text.substr(at);
      break;
    }
    bare += text.substr(at, open - at);
    at = close + (comment ? 3 : 1);
  }
  std::string out;
  for (std::string_view rest = StripLeft(bare); !rest.empty(); rest = StripLeft(rest)) {
    size_t end = 0;
    for (size_t pos = 0; pos < rest.size(); end = pos) {
      if (IsSpace(NextCodePoint(rest, pos))) break;
    }
    if (!out.empty()) out += ' ';
    out += rest.substr(0, end);
    rest = rest.substr(end);
  }
  static constexpr std::pair<const char*, const char*> kEntities[] = {
      {"&lt;", "<"},  {"&gt;", ">"},          {"&#34;", "\""}, {"&quot;", "\""},
      {"&#39;", "'"}, {"&nbsp;", "\xc2\xa0"}, {"&amp;", "&"}};
  for (const auto& [entity, character] : kEntities) out = ReplaceAll(out, entity, character, -1);
  return Value::String(std::move(out));
}

Value FileSizeFormat(Interpreter& in, const Value& input, CallArgs& args) {
  const Arguments bound("filesizeformat", args, {"binary"});
  CallArgs none;
  if (!input.IsNumber() && !(input.IsString() && ParseFloat(input.str()))) {
    Raise("could not convert to float: {}", ToRepr(input, 1000));
  }
  const double bytes = ToFloat(in, input, none).float_value();
  const bool binary = bound.Bool(0, false);
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return Value::String("1 Byte");
  if (bytes < base) return Value::String(fmt::format("{} Bytes", Truncated(bytes)));
  double unit = base;
  static constexpr std::string_view kPrefixes = "kMGTPEZY";
  size_t i = 0;
  for (; i + 1 < kPrefixes.size(); ++i) {
    if (bytes < unit * base) break;
    unit *= base;
  }
  const char prefix = binary && i == 0 ? 'K' : kPrefixes[i];
  return Value::String(FormatFloat(base * bytes / (unit * base), 'f', 1, false) + " " + prefix +
                       (binary ? "iB" : "B"));
}

[[noreturn]] void Refuse(const char* name, const char* why) {
  Raise("the filter '{}' is refused in chat templates: {}", name, why);
}
Value Random(Interpreter&, const Value&, CallArgs&) {
  Refuse("random", "the same messages must give the same text");
}
Value PrettyPrint(Interpreter&, const Value&, CallArgs&) { Refuse("pprint", "use tojson"); }
Value Urlize(Interpreter&, const Value&, CallArgs&) { Refuse("urlize", "it makes HTML"); }
Value WordWrap(Interpreter&, const Value&, CallArgs&) {
  Refuse("wordwrap", "models read unwrapped text");
}

}  // namespace

const std::vector<NamedFilter>& TextFilters() {
  static const std::vector<NamedFilter> table = {
      {"abs", Abs},
      {"capitalize", MapText<Capitalize>},
      {"center", Center},
      {"e", Escape},
      {"escape", Escape},
      {"filesizeformat", FileSizeFormat},
      {"float", ToFloat},
      {"forceescape", ForceEscape},
      {"format", Format},
      {"indent", Indent},
      {"int", ToInt},
      {"lower", MapText<ToLower>},
      {"pprint", PrettyPrint},
      {"random", Random},
      {"replace", Replace},
      {"round", Round},
      {"safe", Safe},
      {"string", String},
      {"striptags", StripTags},
      {"title", MapText<TitleWords>},
      {"tojson", ToJson},
      {"trim", Trim},
      {"truncate", Truncate},
      {"upper", MapText<ToUpper>},
      {"urlencode", UrlEncode},
      {"urlize", Urlize},
      {"wordcount", WordCount},
      {"wordwrap", WordWrap},
      {"xmlattr", XmlAttr},
  };
  return table;
}

}  // namespace nibble::jinja
