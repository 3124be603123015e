#include "base/utf8.h"

#include <cstring>

namespace nibble {
namespace {

// How many bytes a lead byte announces and the bounds of the second byte (Unicode, table 3-7).
struct Lead {
  uint8_t length;  // 0: no lead byte
  uint8_t low, high;
};

Lead Classify(uint8_t b) {
  if (b < 0x80) return {1, 0, 0};
  if (b < 0xC2) return {0, 0, 0};
  if (b < 0xE0) return {2, 0x80, 0xBF};
  if (b == 0xE0) return {3, 0xA0, 0xBF};
  if (b == 0xED) return {3, 0x80, 0x9F};
  if (b < 0xF0) return {3, 0x80, 0xBF};
  if (b == 0xF0) return {4, 0x90, 0xBF};
  if (b < 0xF4) return {4, 0x80, 0xBF};
  if (b == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// Bytes of text that agree with its lead byte, up to the announced length.
size_t Agreeing(std::string_view text, const Lead& lead) {
  size_t n = 1;
  while (n < lead.length && n < text.size()) {
    const auto b = static_cast<uint8_t>(text[n]);
    const uint8_t low = n == 1 ? lead.low : 0x80;
    const uint8_t high = n == 1 ? lead.high : 0xBF;
    if (b < low || b > high) break;
    ++n;
  }
  return n;
}

}  // namespace

size_t Utf8CharLength(std::string_view text) {
  if (text.empty()) return 0;
  const Lead lead = Classify(static_cast<uint8_t>(text[0]));
  if (lead.length <= 1) return lead.length;
  return Agreeing(text, lead) == lead.length ? lead.length : 0;
}

size_t Utf8InvalidLength(std::string_view text) {
  if (text.empty()) return 0;
  const Lead lead = Classify(static_cast<uint8_t>(text[0]));
  return lead.length <= 1 ? 1 : Agreeing(text, lead);
}

bool IsUtf8Prefix(std::string_view text) {
  if (text.empty()) return false;
  const Lead lead = Classify(static_cast<uint8_t>(text[0]));
  return lead.length > text.size() && Agreeing(text, lead) == text.size();
}

DecodedChar DecodeUtf8(std::string_view text, size_t offset) {
  const auto* p = reinterpret_cast<const uint8_t*>(text.data()) + offset;
  if (p[0] < 0x80) return {p[0], 1};
  if (p[0] < 0xE0) return {static_cast<char32_t>((p[0] & 0x1F) << 6 | (p[1] & 0x3F)), 2};
  if (p[0] < 0xF0) {
    return {static_cast<char32_t>((p[0] & 0x0F) << 12 | (p[1] & 0x3F) << 6 | (p[2] & 0x3F)), 3};
  }
  return {static_cast<char32_t>((p[0] & 0x07) << 18 | (p[1] & 0x3F) << 12 | (p[2] & 0x3F) << 6 |
                                (p[3] & 0x3F)),
          4};
}

DecodedChar DecodeUtf8Safely(std::string_view text, size_t offset) {
  if (static_cast<uint8_t>(text[offset]) < 0x80) return {static_cast<uint8_t>(text[offset]), 1};
  const std::string_view rest = text.substr(offset, 4);
  if (Utf8CharLength(rest) != 0) return DecodeUtf8(text, offset);
  return {kReplacementChar, static_cast<uint8_t>(Utf8InvalidLength(rest))};
}

void AppendUtf8(std::string& out, char32_t code) {
  char bytes[4];
  out.append(bytes, AppendUtf8(code, bytes));
}

char* AppendUtf8(char32_t code, char* out) {
  const auto put = [&](char32_t byte) { *out++ = static_cast<char>(byte); };
  const auto tail = [&](int shift) { put(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    tail(6);
    tail(0);
  } else {
    put(0xF0 | code >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
  return out;
}

size_t FindInvalidUtf8(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080808080808080U;
  size_t i = 0;
  while (i < text.size()) {
    uint64_t word;
    if (text.size() - i >= sizeof word) {  // eight ASCII bytes at once
      std::memcpy(&word, text.data() + i, sizeof word);
      if ((word & kHighBits) == 0) {
        i += sizeof word;
        continue;
      }
    }
    const size_t length = Utf8CharLength(text.substr(i));
    if (length == 0) return i;
    i += length;
  }
  return std::string_view::npos;
}

bool IsValidUtf8(std::string_view text) { return FindInvalidUtf8(text) == std::string_view::npos; }

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    if (const size_t n = Utf8CharLength(text.substr(i))) {
      out.append(text, i, n);
      i += n;
    } else {
      AppendUtf8(out, kReplacementChar);
      i += Utf8InvalidLength(text.substr(i));
    }
  }
  return out;
}

}  // namespace nibble
