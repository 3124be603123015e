// json.dumps as transformers' tojson filter calls it.
#include <algorithm>
#include <cmath>

#include "tokenizer/jinja_interpreter.h"
#include "tokenizer/jinja_text.h"

namespace nibble::jinja {
namespace {

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // of one level
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

class JsonWriter {
 public:
  JsonWriter(Interpreter& in, const JsonStyle& style) : in_(in), style_(style) {}

  void Write(const Value& value) {
    in_.Charge(1);
    in_.CheckStringSize(out_.size());
    switch (value.kind()) {
      case Kind::kNone:
        out_ += "null";
        break;
      case Kind::kBool:
        out_ += value.bool_value() ? "true" : "false";
        break;
      case Kind::kInt:
        out_ += std::to_string(value.int_value());
        break;
      case Kind::kFloat:
        out_ += Number(value.float_value());
        break;
      case Kind::kString:
        WriteString(value.str());
        break;
      case Kind::kList:
      case Kind::kTuple:
        WriteList(value.items());
        break;
      case Kind::kDict:
        WriteDict(value.dict());
        break;
      default:
        Raise("Object of type {} is not JSON serializable", TypeName(value));
    }
  }

  std::string Take() { return std::move(out_); }

 private:
  static std::string Number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return FloatRepr(value);
  }

  void WriteString(std::string_view text) {
    out_ += '"';
    for (size_t pos = 0; pos < text.size();) {
      const uint32_t cp = NextCodePoint(text, pos);
      static constexpr std::string_view kPlain = "\"\\\n\r\t\f\b";
      static constexpr std::string_view kEscaped = "\"\\nrtfb";
      if (const size_t at = cp < 128 ? kPlain.find(char(cp)) : kPlain.npos; at != kPlain.npos) {
        out_ += '\\';
        out_ += kEscaped[at];
      } else if (cp < 0x20 || (style_.ensure_ascii && cp >= 0x7F && cp < 0x10000)) {
        out_ += fmt::format("\\u{:04x}", cp);
      } else if (style_.ensure_ascii && cp >= 0x10000) {
        out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((cp - 0x10000) >> 10),
                            0xDC00 + ((cp - 0x10000) & 0x3FF));
      } else {
        AppendCodePoint(out_, cp);
      }
    }
    out_ += '"';
  }

  void NewLine() {
    if (!style_.indent) return;
    out_ += '\n';
    for (int i = 0; i < level_; ++i) out_ += *style_.indent;
  }

  void Separate(bool first) {
    if (!first) out_ += style_.item_separator;
    NewLine();
  }

  void WriteList(const std::vector<Value>& items) {
    out_ += '[';
    ++level_;
    for (size_t i = 0; i < items.size(); ++i) {
      Separate(i == 0);
      Write(items[i]);
    }
    --level_;
    if (!items.empty()) NewLine();
    out_ += ']';
  }

  std::string Key(const Value& key) const {
    switch (key.kind()) {
      case Kind::kString:
        return key.str();
      case Kind::kNone:
        return "null";
      case Kind::kBool:
        return key.bool_value() ? "true" : "false";
      case Kind::kInt:
        return std::to_string(key.int_value());
      case Kind::kFloat:
        return Number(key.float_value());
      default:
        Raise("keys must be str, int, float, bool or None, not {}", TypeName(key));
    }
  }

  void WriteDict(const Dict& dict) {
    std::vector<const Dict::Item*> items;
    for (const auto& item : dict.items()) items.push_back(&item);
    if (style_.sort_keys) {
      std::stable_sort(items.begin(), items.end(), [](const auto* a, const auto* b) {
        const auto order = Compare(a->first, b->first, "<");
        return order && *order < 0;
      });
    }
    out_ += '{';
    ++level_;
    for (size_t i = 0; i < items.size(); ++i) {
      Separate(i == 0);
      WriteString(Key(items[i]->first));
      out_ += style_.key_separator;
      Write(items[i]->second);
    }
    --level_;
    if (!items.empty()) NewLine();
    out_ += '}';
  }

  Interpreter& in_;
  const JsonStyle& style_;
  int level_ = 0;
  std::string out_;
};

}  // namespace

Value ToJson(Interpreter& in, const Value& value, CallArgs& args) {
  const Arguments bound("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound.Bool(0, false);
  style.sort_keys = bound.Bool(3, false);
  if (bound.Has(1) && !bound.Get(1).IsNone()) {
    if (bound.Get(1).IsString()) {
      style.indent = bound.Get(1).str();
    } else {
      const int64_t width = RequireInt(bound.Get(1));
      if (width > 10'000) Raise("tojson: an indent of {} is too wide", width);
      style.indent = std::string(size_t(std::max<int64_t>(width, 0)), ' ');
    }
    style.item_separator = ",";
  }
  if (bound.Has(2) && !bound.Get(2).IsNone()) {
    const auto separators = in.Collect(bound.Get(2));
    if (separators.size() != 2) Raise("tojson: separators must be two strings");
    for (const Value& separator : separators) {
      if (!separator.IsString()) Raise("tojson: separators must be two strings");
    }
    style.item_separator = separators[0].str();
    style.key_separator = separators[1].str();
  }
  JsonWriter writer(in, style);
  writer.Write(value);
  return Value::String(writer.Take());
}

}  // namespace nibble::jinja
