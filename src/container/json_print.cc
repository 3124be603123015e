#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "container/json.h"
#include "container/json_text.h"

namespace nibble {

void AppendJsonString(std::string_view text, std::string& out) {
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<uint8_t>(c) < 0x20) {
          fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<uint8_t>(c));
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

namespace {

void AppendDouble(double value, std::string& out) {
  if (std::isnan(value)) {
    out += "NaN";
  } else if (std::isinf(value)) {
    out += value > 0 ? "Infinity" : "-Infinity";
  } else {
    const size_t start = out.size();
    fmt::format_to(std::back_inserter(out), "{}", value);
    // As Python writes it: 4.0 stays a double when it is read again, and -0.0 keeps its sign.
    if (out.find_first_of(".e", start) == std::string::npos) out += ".0";
  }
}

// Recursive: the parser has bounded the depth.
void AppendValue(const JsonValue& value, std::string& out) {
  switch (value.kind()) {
    case JsonKind::kNull:
      out += "null";
      return;
    case JsonKind::kBool:
      out += *value.AsBool() ? "true" : "false";
      return;
    case JsonKind::kInt:
      fmt::format_to(std::back_inserter(out), "{}", *value.AsInt());
      return;
    case JsonKind::kDouble:
      AppendDouble(*value.AsDouble(), out);
      return;
    case JsonKind::kString:
      AppendJsonString(*value.AsString(), out);
      return;
    case JsonKind::kArray: {
      std::string_view separator = "[";
      const JsonArray elements = *value.AsArray();  // GCC 12: the loop would not keep it alive
      for (const JsonValue element : elements) {
        out += separator;
        AppendValue(element, out);
        separator = ", ";
      }
      out += separator == "[" ? "[]" : "]";
      return;
    }
    case JsonKind::kObject: {
      std::string_view separator = "{";
      const JsonObject members = *value.AsObject();
      for (const auto& [key, member] : members) {
        out += separator;
        AppendJsonString(key, out);
        out += ": ";
        AppendValue(member, out);
        separator = ", ";
      }
      out += separator == "{" ? "{}" : "}";
      return;
    }
  }
}

}  // namespace

std::string JsonValue::ToString() const {
  std::string out;
  AppendValue(*this, out);
  return out;
}

}  // namespace nibble
