#include "tokenizer/jinja_str_methods.h"

#include <algorithm>

#include "tokenizer/jinja_text.h"

namespace nibble::jinja {
namespace {

Value Text(const Value& self, std::string text) {
  return Value::String(std::move(text), self.IsMarkup());
}

void NoArguments(const char* name, CallArgs& args) { const Arguments none(name, args, {}); }

// Methods without arguments that map text to text.
template <std::string (*Map)(std::string_view)>
Value MapText(Interpreter& in, const Value& self, CallArgs& args) {
  NoArguments("str method", args);
  in.Charge(int64_t(self.str().size() / 16));
  return Text(self, Map(self.str()));
}

template <bool (*Is)(uint32_t)>
Value AllOf(Interpreter&, const Value& self, CallArgs& args) {
  NoArguments("str method", args);
  const std::string& text = self.str();
  if (text.empty()) return Value::Bool(false);
  for (size_t pos = 0; pos < text.size();) {
    if (!Is(NextCodePoint(text, pos))) return Value::Bool(false);
  }
  return Value::Bool(true);
}

Value IsPrintableText(Interpreter& in, const Value& self, CallArgs& args) {
  return self.str().empty() ? Value::Bool(true) : AllOf<IsPrintable>(in, self, args);
}

Value IsAsciiText(Interpreter&, const Value& self, CallArgs&) {
  return Value::Bool(std::ranges::all_of(self.str(), [](unsigned char c) { return c < 128; }));
}

Value IsIdentifierText(Interpreter&, const Value& self, CallArgs&) {
  const std::string& text = self.str();
  if (text.empty()) return Value::Bool(false);
  for (size_t pos = 0; pos < text.size();) {
    const bool first = pos == 0;
    const uint32_t cp = NextCodePoint(text, pos);
    if (first ? !IsIdentifierStart(cp) : !IsIdentifierPart(cp)) return Value::Bool(false);
  }
  return Value::Bool(true);
}

Value IsUpperText(Interpreter&, const Value& self, CallArgs&) {
  return Value::Bool(IsUpperCased(self.str()));
}

Value IsLowerText(Interpreter&, const Value& self, CallArgs&) {
  return Value::Bool(IsLowerCased(self.str()));
}

Value IsTitleText(Interpreter&, const Value& self, CallArgs&) {
  const std::string& text = self.str();
  bool cased = false, in_word = false;
  for (size_t pos = 0; pos < text.size();) {
    const uint32_t cp = NextCodePoint(text, pos);
    if (IsUpper(cp) || IsTitle(cp)) {
      if (in_word) return Value::Bool(false);
      in_word = cased = true;
    } else if (IsLower(cp)) {
      if (!in_word) return Value::Bool(false);
    } else {
      in_word = false;
    }
  }
  return Value::Bool(cased);
}

enum Sides { kLeft = 1, kRight = 2, kBoth = 3 };

template <int kSides>
Value Strip(Interpreter& in, const Value& self, CallArgs& args) {
  const Positional bound("strip", args, {"chars"});
  in.Charge(int64_t(self.str().size() / 64));
  std::string_view text = self.str();
  if (!bound.Has(0) || bound.Get(0).IsNone()) {
    if (kSides & kLeft) text = StripLeft(text);
    if (kSides & kRight) text = StripRight(text);
  } else {
    const std::string& chars = bound.Text(0);
    if (kSides & kLeft) text = StripLeft(text, chars);
    if (kSides & kRight) text = StripRight(text, chars);
  }
  return Text(self, std::string(text));
}

// Byte range of text[start:end] with Python's clamping; nothing when start lies behind the text.
struct Window {
  bool valid = true;
  size_t begin = 0, end = 0;
};

Window WindowOf(const Value& self, const Arguments& bound, size_t first) {
  const Str& str = self.string();
  const int64_t size = int64_t(str.Length());
  const auto read = [&](size_t i, int64_t fallback) {
    if (!bound.Has(i) || bound.Get(i).IsNone()) return fallback;
    const int64_t at = RequireInt(bound.Get(i));
    return at < 0 ? std::max<int64_t>(at < -size ? 0 : at + size, 0) : at;
  };
  const int64_t start = read(first, 0);
  const int64_t end = std::min(read(first + 1, size), size);
  if (start > end) return {false, 0, 0};
  if (str.IsAscii()) return {true, size_t(start), size_t(end)};
  return {true, ByteOffset(str.text, size_t(start)), ByteOffset(str.text, size_t(end))};
}

enum class Edge { kStart, kEnd };

template <Edge kEdge>
Value HasEdge(Interpreter&, const Value& self, CallArgs& args) {
  const Positional bound(kEdge == Edge::kStart ? "startswith" : "endswith", args,
                         {"prefix", "start", "end"}, 1);
  const Window window = WindowOf(self, bound, 1);
  const std::string_view text =
      std::string_view(self.str()).substr(window.begin, window.end - window.begin);
  const auto matches = [&](const Value& edge) {
    if (edge.IsUndefined()) throw TemplateError(edge.UndefinedMessage());
    if (!edge.IsString()) Raise("first arg must be str or a tuple of str, not {}", TypeName(edge));
    return window.valid &&
           (kEdge == Edge::kStart ? text.starts_with(edge.str()) : text.ends_with(edge.str()));
  };
  if (!bound.Get(0).Is(Kind::kTuple)) return Value::Bool(matches(bound.Get(0)));
  const auto& edges = bound.Get(0).items();
  return Value::Bool(std::any_of(edges.begin(), edges.end(), matches));
}

enum class Search { kFind, kIndex, kLastFind, kLastIndex, kCount };

template <Search kSearch>
Value SearchText(Interpreter& in, const Value& self, CallArgs& args) {
  const Positional bound("find", args, {"sub", "start", "end"}, 1);
  const std::string& needle = bound.Text(0);
  in.Charge(int64_t(self.str().size() / 64));
  const Window window = WindowOf(self, bound, 1);
  const std::string_view text =
      std::string_view(self.str()).substr(window.begin, window.end - window.begin);
  if (kSearch == Search::kCount) {
    if (!window.valid) return Value::Int(0);
    if (needle.empty()) return Value::Int(int64_t(CountCodePoints(text)) + 1);
    int64_t count = 0;
    for (size_t at = 0; (at = text.find(needle, at)) != text.npos; at += needle.size()) ++count;
    return Value::Int(count);
  }
  constexpr bool kLast = kSearch == Search::kLastFind || kSearch == Search::kLastIndex;
  const size_t at = !window.valid ? text.npos : kLast ? text.rfind(needle) : text.find(needle);
  if (at != text.npos) {
    return Value::Int(
        int64_t(CountCodePoints(std::string_view(self.str()).substr(0, window.begin + at))));
  }
  if (kSearch == Search::kIndex || kSearch == Search::kLastIndex) Raise("substring not found");
  return Value::Int(-1);
}

Value Replace(Interpreter& in, const Value& self, CallArgs& args) {
  const Positional bound("replace", args, {"old", "new", "count"}, 2);
  return Text(self, CheckedReplace(in, self.str(), bound.Text(0), bound.Text(1), bound.Int(2, -1)));
}

std::vector<Value> Values(const Value& self, const std::vector<std::string_view>& parts) {
  std::vector<Value> out;
  out.reserve(parts.size());
  for (const auto part : parts) out.push_back(Text(self, std::string(part)));
  return out;
}

// Splits at white space from the left, at most `limit` times.
std::vector<std::string_view> SplitSpace(std::string_view text, int64_t limit) {
  std::vector<std::string_view> parts;
  for (text = StripLeft(text); !text.empty(); text = StripLeft(text)) {
    if (limit-- == 0) {
      parts.push_back(text);  // what is left keeps the space at its end
      break;
    }
    size_t end = 0;
    for (size_t pos = 0; pos < text.size(); end = pos) {
      if (IsSpace(NextCodePoint(text, pos))) break;
    }
    parts.push_back(text.substr(0, end));
    text = text.substr(end);
  }
  return parts;
}

std::vector<std::string_view> SplitSpaceRight(std::string_view text, int64_t limit) {
  const auto all = SplitSpace(text, -1);  // from the left: the same words
  if (limit < 0 || int64_t(all.size()) <= limit) return all;
  std::vector<std::string_view> parts(all.end() - limit, all.end());
  const size_t head = all.size() - size_t(limit);
  if (head > 0) {
    const char* begin = text.data();  // what is left keeps the space at its start
    const auto& last = all[head - 1];
    parts.insert(parts.begin(), std::string_view(begin, size_t(last.data() + last.size() - begin)));
  }
  return parts;
}

template <bool kRightmost>
Value Split(Interpreter& in, const Value& self, CallArgs& args) {
  const Arguments bound("split", args, {"sep", "maxsplit"});
  in.Charge(int64_t(self.str().size() / 16));
  int64_t limit = bound.Int(1, -1);
  if (limit < 0) limit = -1;
  std::string_view text = self.str();
  if (!bound.Has(0) || bound.Get(0).IsNone()) {
    return Value::MakeList(
        Values(self, kRightmost ? SplitSpaceRight(text, limit) : SplitSpace(text, limit)));
  }
  const std::string& separator = bound.Text(0);
  if (separator.empty()) Raise("empty separator");
  std::vector<std::string_view> parts;
  while (limit-- != 0) {
    const size_t at = kRightmost ? text.rfind(separator) : text.find(separator);
    if (at == text.npos) break;
    const std::string_view behind = text.substr(at + separator.size());
    parts.push_back(kRightmost ? behind : text.substr(0, at));
    text = kRightmost ? text.substr(0, at) : behind;
  }
  parts.push_back(text);
  if (kRightmost) std::ranges::reverse(parts);
  return Value::MakeList(Values(self, parts));
}

template <bool kRightmost>
Value Partition(Interpreter&, const Value& self, CallArgs& args) {
  const Positional bound("partition", args, {"sep"}, 1);
  const std::string& separator = bound.Text(0);
  if (separator.empty()) Raise("empty separator");
  const std::string& text = self.str();
  const size_t at = kRightmost ? text.rfind(separator) : text.find(separator);
  std::vector<std::string_view> parts = {text, "", ""};
  if (at != text.npos) {
    parts = {std::string_view(text).substr(0, at), separator,
             std::string_view(text).substr(at + separator.size())};
  } else if (kRightmost) {
    parts = {"", "", text};
  }
  return Value::MakeTuple(Values(self, parts));
}

Value SplitLinesOf(Interpreter& in, const Value& self, CallArgs& args) {
  const Arguments bound("splitlines", args, {"keepends"});
  in.Charge(int64_t(self.str().size() / 16));
  return Value::MakeList(Values(self, SplitLines(self.str(), bound.Bool(0, false))));
}

Value Join(Interpreter& in, const Value& self, CallArgs& args) {
  const Positional bound("join", args, {"iterable"}, 1);
  std::string out;
  size_t i = 0;
  for (const Value& item : in.Collect(bound.Get(0))) {
    if (!item.IsString()) {
      Raise("sequence item {}: expected str instance, {} found", i, TypeName(item));
    }
    if (i++) out += self.str();
    out += item.str();
    in.CheckStringSize(out.size());
  }
  return Text(self, std::move(out));
}

template <char kAlign>
Value Justify(Interpreter& in, const Value& self, CallArgs& args) {
  const Positional bound("just", args, {"width", "fillchar"}, 1);
  const std::string fill = bound.Has(1) ? bound.Text(1) : " ";
  if (CountCodePoints(fill) != 1) Raise("The fill character must be exactly one character long");
  return Text(self, Justified(in, self.string(), bound.Int(0, 0), kAlign, fill));
}

Value ZeroFill(Interpreter& in, const Value& self, CallArgs& args) {
  const Positional bound("zfill", args, {"width"}, 1);
  const std::string& text = self.str();
  const int64_t missing = bound.Int(0, 0) - int64_t(self.string().Length());
  if (missing <= 0) return self;
  in.CheckStringSize(size_t(missing) + text.size());
  const size_t sign = !text.empty() && (text[0] == '+' || text[0] == '-');
  return Text(self, text.substr(0, sign) + std::string(size_t(missing), '0') + text.substr(sign));
}

Value ExpandTabs(Interpreter& in, const Value& self, CallArgs& args) {
  const Arguments bound("expandtabs", args, {"tabsize"});
  const int64_t size = bound.Int(0, 8);
  std::string out;
  int64_t column = 0;
  const std::string& text = self.str();
  for (size_t pos = 0; pos < text.size();) {
    const uint32_t cp = NextCodePoint(text, pos);
    if (cp == '\t') {
      const int64_t spaces = size > 0 ? size - column % size : 0;
      in.CheckStringSize(out.size() + size_t(spaces));
      out.append(size_t(spaces), ' ');
      column += spaces;
      continue;
    }
    AppendCodePoint(out, cp);
    column = cp == '\n' || cp == '\r' ? 0 : column + 1;
  }
  return Text(self, std::move(out));
}

template <Edge kEdge>
Value RemoveEdge(Interpreter&, const Value& self, CallArgs& args) {
  const Positional bound("remove", args, {"edge"}, 1);
  std::string_view text = self.str();
  const std::string& edge = bound.Text(0);
  if (kEdge == Edge::kStart && text.starts_with(edge)) text = text.substr(edge.size());
  if (kEdge == Edge::kEnd && text.ends_with(edge)) text = text.substr(0, text.size() - edge.size());
  return Text(self, std::string(text));
}

Value Format(Interpreter& in, const Value& self, CallArgs& args) {
  return Text(self, BraceFormat(in, self.str(), args));
}

Value FormatMap(Interpreter& in, const Value& self, CallArgs& args) {
  const Positional bound("format_map", args, {"mapping"}, 1);
  if (!bound.Get(0).Is(Kind::kDict)) Raise("format_map() needs a mapping");
  CallArgs named;
  for (const auto& [key, value] : bound.Get(0).dict().items()) {
    if (key.IsString()) named.keyword.emplace_back(key.str(), value);
  }
  return Text(self, BraceFormat(in, self.str(), named));
}

struct NamedMethod {
  std::string_view name;
  Method method;
};

constexpr NamedMethod kMethods[] = {
    {"capitalize", MapText<Capitalize>},
    {"casefold", MapText<CaseFold>},
    {"center", Justify<'^'>},
    {"count", SearchText<Search::kCount>},
    {"endswith", HasEdge<Edge::kEnd>},
    {"expandtabs", ExpandTabs},
    {"find", SearchText<Search::kFind>},
    {"format", Format},
    {"format_map", FormatMap},
    {"index", SearchText<Search::kIndex>},
    {"isalnum", AllOf<IsAlnum>},
    {"isalpha", AllOf<IsAlpha>},
    {"isascii", IsAsciiText},
    {"isdecimal", AllOf<IsDecimal>},
    {"isdigit", AllOf<IsDigit>},
    {"isidentifier", IsIdentifierText},
    {"islower", IsLowerText},
    {"isnumeric", AllOf<IsNumeric>},
    {"isprintable", IsPrintableText},
    {"isspace", AllOf<IsSpace>},
    {"istitle", IsTitleText},
    {"isupper", IsUpperText},
    {"join", Join},
    {"ljust", Justify<'<'>},
    {"lower", MapText<ToLower>},
    {"lstrip", Strip<kLeft>},
    {"partition", Partition<false>},
    {"removeprefix", RemoveEdge<Edge::kStart>},
    {"removesuffix", RemoveEdge<Edge::kEnd>},
    {"replace", Replace},
    {"rfind", SearchText<Search::kLastFind>},
    {"rindex", SearchText<Search::kLastIndex>},
    {"rjust", Justify<'>'>},
    {"rpartition", Partition<true>},
    {"rsplit", Split<true>},
    {"rstrip", Strip<kRight>},
    {"split", Split<false>},
    {"splitlines", SplitLinesOf},
    {"startswith", HasEdge<Edge::kStart>},
    {"strip", Strip<kBoth>},
    {"swapcase", MapText<SwapCase>},
    {"title", MapText<ToTitleCase>},
    {"upper", MapText<ToUpper>},
    {"zfill", ZeroFill},
};

template <bool (*Is)(uint32_t), bool (*IsOther)(uint32_t)>
bool AllCased(std::string_view text) {
  bool cased = false;
  for (size_t pos = 0; pos < text.size();) {
    const uint32_t cp = NextCodePoint(text, pos);
    if (IsOther(cp) || IsTitle(cp)) return false;
    cased |= Is(cp);
  }
  return cased;
}

}  // namespace

bool IsUpperCased(std::string_view text) { return AllCased<IsUpper, IsLower>(text); }
bool IsLowerCased(std::string_view text) { return AllCased<IsLower, IsUpper>(text); }

std::string CheckedReplace(Interpreter& in, const std::string& text, const std::string& from,
                           const std::string& to, int64_t count) {
  in.Charge(int64_t(text.size() / 64));
  size_t places = from.empty() ? text.size() + 1 : 0;
  if (!from.empty()) {
    for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += from.size()) ++places;
  }
  if (count >= 0) places = std::min(places, size_t(count));
  if (!to.empty() && places > (size_t{1} << 40) / to.size()) in.CheckStringSize(SIZE_MAX);
  in.CheckStringSize(text.size() - (from.empty() ? 0 : places * from.size()) + places * to.size());
  return ReplaceAll(text, from, to, count);
}

std::string Justified(Interpreter& in, const Str& str, int64_t width, char align,
                      const std::string& fill) {
  const int64_t missing = width - int64_t(str.Length());
  if (missing <= 0) return str.text;
  in.CheckStringSize(size_t(std::min<int64_t>(missing, int64_t{1} << 40)) * fill.size() +
                     str.text.size());
  // str.center puts the odd blank left where the width is odd.
  const int64_t left = align == '>'   ? missing
                       : align == '^' ? missing / 2 + (missing & width & 1)
                                      : 0;
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += str.text;
  for (int64_t i = left; i < missing; ++i) out += fill;
  return out;
}

Method FindStrMethod(std::string_view name) {
  const auto* it = std::ranges::find(kMethods, name, &NamedMethod::name);
  return it == std::end(kMethods) ? nullptr : it->method;
}

}  // namespace nibble::jinja
