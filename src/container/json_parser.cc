#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <new>
#include <system_error>

#include "base/utf8.h"
#include "container/json.h"
#include "container/json_node.h"

namespace nibble {

// One pass over the text with a stack of open containers, no recursion. Strings are unescaped in
// place: no escape is shorter than what it stands for.
class JsonParser {
 public:
  using Node = JsonDocument::Node;
  JsonParser(JsonDocument::Impl& impl, const JsonLimits& limits)
      : impl_(impl),
        limits_(limits),
        begin_(impl.text.data()),
        at_(begin_),
        end_(begin_ + impl.text.size()) {}

  Status Run() {
    if (end_ - at_ >= 3 && std::string_view(at_, 3) == "\xEF\xBB\xBF") at_ += 3;
    for (;;) {
      NIBBLE_RETURN_IF_ERROR(OneValue());
      for (;;) {  // close what ends here, then go on to the next value
        SkipSpace();
        if (open_.empty()) {
          if (at_ != end_) return Wrong("the end of the text");
          return {};
        }
        Node& parent = impl_.nodes[open_.back()];
        const bool object = parent.kind == JsonKind::kObject;
        if (at_ != end_ && *at_ == ',') {
          ++at_;
          SkipSpace();
          if (object) NIBBLE_RETURN_IF_ERROR(Key());
          break;
        }
        if (at_ == end_ || *at_ != (object ? '}' : ']')) {
          return Wrong(object ? "',' or '}'" : "',' or ']'");
        }
        ++at_;
        parent.nodes = impl_.nodes.size() - open_.back();
        open_.pop_back();
      }
    }
  }

 private:
  // A value, or the first one inside of nested containers; an empty container is whole.
  Status OneValue() {
    for (;;) {
      SkipSpace();
      if (at_ == end_) return Wrong("a value");
      NIBBLE_RETURN_IF_ERROR(CountValue());
      if (*at_ != '{' && *at_ != '[') return Scalar();
      const bool object = *at_ == '{';
      if (open_.size() >= static_cast<size_t>(limits_.max_depth)) {
        return BadInput("{}: arrays and objects nested more than {} deep", Place(),
                        limits_.max_depth);
      }
      open_.push_back(impl_.nodes.size());
      Node& node = impl_.nodes.emplace_back();
      node.kind = object ? JsonKind::kObject : JsonKind::kArray;
      node.nodes = 1;
      ++at_;
      SkipSpace();
      if (at_ != end_ && *at_ == (object ? '}' : ']')) {
        ++at_;
        open_.pop_back();
        return {};
      }
      if (object) NIBBLE_RETURN_IF_ERROR(Key());
    }
  }

  // Counts the value that begins here in its container.
  Status CountValue() {
    if (!open_.empty()) ++impl_.nodes[open_.back()].count;
    if (impl_.nodes.size() < limits_.max_values) return {};
    return BadInput("{}: more than {} values", Place(), limits_.max_values);
  }

  Status Key() {
    if (at_ == end_ || *at_ != '"') return Wrong("a key in double quotes");
    NIBBLE_RETURN_IF_ERROR(String());
    SkipSpace();
    if (at_ == end_ || *at_ != ':') return Wrong("':' after a key");
    ++at_;
    return {};
  }

  Status Scalar() {
    switch (*at_) {
      case '"':
        return String();
      case 't':
        return Word("true", JsonKind::kBool, 1);
      case 'f':
        return Word("false", JsonKind::kBool, 0);
      case 'n':
        return Word("null", JsonKind::kNull, 0);
      case 'N':
        return RealWord("NaN", std::numeric_limits<double>::quiet_NaN());
      case 'I':
        return RealWord("Infinity", std::numeric_limits<double>::infinity());
      default:
        return Number();
    }
  }

  bool Take(std::string_view word) {
    if (std::string_view(at_, static_cast<size_t>(end_ - at_)).starts_with(word)) {
      at_ += word.size();
      return true;
    }
    return false;
  }

  Status Word(std::string_view word, JsonKind kind, int64_t integer) {
    if (!Take(word)) return Wrong("a value");
    Node& node = impl_.nodes.emplace_back();
    node.kind = kind;
    node.integer = integer;
    return {};
  }

  Status RealWord(std::string_view word, double real) {
    if (!Take(word)) return Wrong("a value");
    Node& node = impl_.nodes.emplace_back();
    node.kind = JsonKind::kDouble;
    node.real = real;
    return {};
  }

  const char* Digits(const char* p) const {
    while (p != end_ && *p >= '0' && *p <= '9') ++p;
    return p;
  }

  Status Number() {
    const char* p = at_;
    if (p != end_ && *p == '-') ++p;
    if (p != end_ && *p == 'I') {
      ++at_;
      return RealWord("Infinity", -std::numeric_limits<double>::infinity());
    }
    const char* const first = p;
    p = Digits(p);
    if (p == first) return Wrong("a value");
    if (*first == '0' && p - first > 1) return Wrong("a number without leading zeros");
    bool integer = true;
    if (p != end_ && *p == '.') {
      integer = false;
      const char* const fraction = ++p;
      p = Digits(p);
      if (p == fraction) return Wrong("digits after the decimal point");
    }
    if (p != end_ && (*p == 'e' || *p == 'E')) {
      integer = false;
      ++p;
      if (p != end_ && (*p == '+' || *p == '-')) ++p;
      const char* const exponent = p;
      p = Digits(p);
      if (p == exponent) return Wrong("digits in the exponent");
    }
    AddNumber(at_, p, integer);
    at_ = p;
    return {};
  }

  void AddNumber(const char* first, const char* last, bool integer) {
    Node& node = impl_.nodes.emplace_back();
    node.kind = JsonKind::kInt;
    if (integer && std::from_chars(first, last, node.integer).ec == std::errc{}) return;
    node.kind = JsonKind::kDouble;
    double real = 0.0;
    // Out of range leaves the value alone: strtod's infinity or zero is what Python reads.
    if (std::from_chars(first, last, real).ec == std::errc::result_out_of_range) {
      real = std::strtod(std::string(first, last).c_str(), nullptr);
    }
    node.real = real;
  }

  // From the opening quote to behind the closing one.
  Status String() {
    const char* const quote = at_++;
    char* const start = begin_ + (at_ - begin_);
    char* out = start;
    for (;;) {
      const char* const run = at_;
      while (at_ != end_ && *at_ != '"' && *at_ != '\\' && static_cast<uint8_t>(*at_) >= 0x20) {
        ++at_;
      }
      if (out != run) std::copy(run, at_, out);
      out += at_ - run;
      if (at_ == end_) {
        at_ = quote;
        return BadInput("{}: a string without an end", Place());
      }
      if (*at_ == '"') break;
      if (*at_ != '\\') return Wrong("an escaped control character");
      NIBBLE_RETURN_IF_ERROR(Escape(out));
    }
    ++at_;
    if (out - start > std::numeric_limits<uint32_t>::max()) {
      return BadInput("{}: a string of more than 4 GiB", Place());
    }
    Node& node = impl_.nodes.emplace_back();
    node.kind = JsonKind::kString;
    node.count = static_cast<uint32_t>(out - start);
    node.text = start;
    return {};
  }

  Status Escape(char*& out) {
    if (end_ - at_ < 2) return Wrong("an escape");
    const char letter = at_[1];
    constexpr std::string_view kLetters = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    if (const size_t i = kLetters.find(letter); i != std::string_view::npos) {
      *out++ = kMeanings[i];
      at_ += 2;
      return {};
    }
    uint32_t unit = 0;
    if (letter != 'u' || !HexUnit(at_, unit)) return Wrong("a valid escape");
    at_ += 6;
    if (unit >= 0xD800 && unit < 0xDC00) {  // a surrogate pair
      uint32_t low = 0;
      if (HexUnit(at_, low) && low >= 0xDC00 && low < 0xE000) {
        unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
        at_ += 6;
      }
    }
    if (unit >= 0xD800 && unit < 0xE000) unit = 0xFFFD;
    out = AppendUtf8(unit, out);
    return {};
  }

  // "\uXXXX" at p.
  bool HexUnit(const char* p, uint32_t& unit) const {
    if (end_ - p < 6 || p[0] != '\\' || p[1] != 'u') return false;
    const auto result = std::from_chars(p + 2, p + 6, unit, 16);
    return result.ec == std::errc{} && result.ptr == p + 6 && p[2] != '-';
  }

  void SkipSpace() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) {
      if (*at_++ == '\n') {
        ++line_;
        line_begin_ = at_;
      }
    }
  }

  // "line 3, column 14": newlines are counted between values, strings hold none.
  std::string Place() const {
    return fmt::format("line {}, column {}", line_, at_ - line_begin_ + 1);
  }

  std::unexpected<Error> Wrong(std::string_view expected) const {
    if (at_ == end_) {
      return BadInput("{}: expected {}, found the end of the text", Place(), expected);
    }
    const auto c = static_cast<uint8_t>(*at_);
    if (c < 0x20 || c >= 0x7f) {
      return BadInput("{}: expected {}, found byte 0x{:02x}", Place(), expected, c);
    }
    return BadInput("{}: expected {}, found '{}'", Place(), expected, *at_);
  }

  JsonDocument::Impl& impl_;
  const JsonLimits& limits_;
  char* begin_;
  const char* at_;
  const char* end_;
  std::vector<size_t> open_;  // nodes of the containers around this place
  size_t line_ = 1;
  const char* line_begin_ = begin_;
};

Result<JsonDocument> JsonDocument::Parse(std::string text, const JsonLimits& limits) try {
  if (text.size() > limits.max_bytes) {
    return BadInput("JSON text of {} bytes, more than the {} allowed", text.size(),
                    limits.max_bytes);
  }
  if (const size_t bad = FindInvalidUtf8(text); bad != std::string::npos) {
    const auto line =
        std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(bad), '\n');
    return BadInput("line {}: byte {} is not valid UTF-8", line + 1, bad);
  }
  auto impl = std::make_unique<Impl>();
  impl->text = std::move(text);
  JsonParser parser(*impl, limits);
  NIBBLE_RETURN_IF_ERROR(parser.Run());
  return JsonDocument(std::move(impl));
} catch (const std::bad_alloc&) {
  return Fail(ErrorKind::kNoRoom, "no memory for a JSON text");
}

Result<JsonDocument> JsonDocument::ReadFile(const std::string& path, const JsonLimits& limits) try {
  std::error_code code;
  const uintmax_t size = std::filesystem::file_size(path, code);
  if (code) return IoError("{}: {}", path, code.message());
  if (size > limits.max_bytes) {
    return BadInput("{}: {} bytes, more than the {} allowed for a JSON file", path, size,
                    limits.max_bytes);
  }
  std::ifstream in(path, std::ios::binary);
  std::string text(size, '\0');
  in.read(text.data(), static_cast<std::streamsize>(size));
  if (!in || in.gcount() != static_cast<std::streamsize>(size)) {
    return IoError("{}: cannot be read", path);
  }
  auto document = Parse(std::move(text), limits);
  if (!document) return Within(path, std::move(document).error());
  return document;
} catch (const std::bad_alloc&) {
  return Fail(ErrorKind::kNoRoom, "{}: no memory for a JSON text", path);
}

}  // namespace nibble
