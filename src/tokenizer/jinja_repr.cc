#include <charconv>
#include <cmath>

#include "tokenizer/jinja_interpreter.h"
#include "tokenizer/jinja_text.h"
#include "tokenizer/jinja_value.h"

namespace nibble::jinja {
namespace {

// Writes repr() of a value; only namespaces can be cyclic, so the depth is checked here too.
class Printer {
 public:
  explicit Printer(size_t limit) : limit_(limit) {}

  void Repr(const Value& value) {
    if (++depth_ > kMaxValueDepth + 100) Raise("maximum recursion depth exceeded");
    Write(value);
    if (out_.size() > limit_) Raise("the text of a value is longer than {} bytes", limit_);
    --depth_;
  }

  std::string Take() { return std::move(out_); }

 private:
  void Write(const Value& value) {
    switch (value.kind()) {
      case Kind::kUndefined:
        out_ += "Undefined";
        break;
      case Kind::kNone:
        out_ += "None";
        break;
      case Kind::kBool:
        out_ += value.bool_value() ? "True" : "False";
        break;
      case Kind::kInt:
        out_ += std::to_string(value.int_value());
        break;
      case Kind::kFloat:
        out_ += FloatRepr(value.float_value());
        break;
      case Kind::kString:
        WriteString(value);
        break;
      case Kind::kList:
        WriteItems("[", value.items(), "]");
        break;
      case Kind::kTuple:
        WriteItems("(", value.items(), value.items().size() == 1 ? ",)" : ")");
        break;
      case Kind::kDict:
        WriteDict(value.dict());
        break;
      case Kind::kRange:
        WriteRange(value.As<Range>());
        break;
      case Kind::kNamespace:
        out_ += "<Namespace ";
        WriteDict(value.As<Namespace>().attributes);
        out_ += '>';
        break;
      case Kind::kGenerator:
        out_ += "<generator object>";
        break;
      case Kind::kDictView:
        WriteView(value);
        break;
      case Kind::kFunction:
        out_ += value.As<Function>().repr;
        break;
      case Kind::kLoop: {
        auto& loop = value.As<Loop>();
        out_ += fmt::format("<LoopContext {}/{}>", loop.index0 + 1, loop.Length());
        break;
      }
    }
  }

  void WriteString(const Value& value) {
    const std::string text = StringRepr(value.str());
    out_ += value.IsMarkup() ? "Markup(" + text + ")" : text;
  }

  void WriteItems(const char* open, const std::vector<Value>& items, const char* close) {
    out_ += open;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i) out_ += ", ";
      Repr(items[i]);
    }
    out_ += close;
  }

  void WriteDict(const Dict& dict) {
    out_ += '{';
    bool first = true;
    for (const auto& [key, value] : dict.items()) {
      if (!first) out_ += ", ";
      first = false;
      Repr(key);
      out_ += ": ";
      Repr(value);
    }
    out_ += '}';
  }

  void WriteRange(const Range& range) {
    out_ += fmt::format("range({}, {}", range.start, range.stop);
    if (range.step != 1) out_ += fmt::format(", {}", range.step);
    out_ += ')';
  }

  void WriteView(const Value& value) {
    out_ += TypeName(value) + "(";
    std::vector<Value> items;
    const auto next = Iterate(value);
    while (auto item = next()) items.push_back(std::move(*item));
    WriteItems("[", items, "])");
  }

  const size_t limit_;
  int depth_ = 0;
  std::string out_;
};

}  // namespace

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string text(buffer, end.ptr);  // d.ddde±xx, shortest that reads back equal
  const size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  const bool negative = text[0] == '-';
  std::string digits;
  for (size_t i = negative; i < e; ++i) {
    if (text[i] != '.') digits += text[i];
  }
  std::string out = negative ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (digits.size() > 1) out += "." + digits.substr(1);
    return out + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return out + "0." + std::string(size_t(-exponent - 1), '0') + digits;
  const size_t whole = size_t(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string StringRepr(std::string_view text) {
  const bool double_quoted = text.find('\'') != text.npos && text.find('"') == text.npos;
  const char quote = double_quoted ? '"' : '\'';
  std::string out(1, quote);
  for (size_t pos = 0; pos < text.size();) {
    const uint32_t cp = NextCodePoint(text, pos);
    if (cp == uint32_t(quote) || cp == '\\') {
      out += '\\';
      out += char(cp);
    } else if (cp == '\n') {
      out += "\\n";
    } else if (cp == '\r') {
      out += "\\r";
    } else if (cp == '\t') {
      out += "\\t";
    } else if (IsPrintable(cp)) {
      AppendCodePoint(out, cp);
    } else if (cp < 0x100) {
      out += fmt::format("\\x{:02x}", cp);
    } else if (cp < 0x10000) {
      out += fmt::format("\\u{:04x}", cp);
    } else {
      out += fmt::format("\\U{:08x}", cp);
    }
  }
  return out + quote;
}

std::string ToRepr(const Value& value, size_t limit) {
  Printer printer(limit);
  printer.Repr(value);
  return printer.Take();
}

std::string ToStr(const Value& value, size_t limit) {
  if (value.IsString()) return value.str();
  if (value.IsUndefined()) return "";
  return ToRepr(value, limit);
}

}  // namespace nibble::jinja
