#include "tokenizer/byte_level.h"

#include <array>

#include "base/utf8.h"

namespace nibble {
namespace {

constexpr bool IsPrintableLatin1(int b) {
  return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
}

constexpr int kTableSize = 256 + 68;

constexpr std::array<char32_t, 256> MakeForward() {
  std::array<char32_t, 256> table{};
  char32_t next = 256;
  for (int b = 0; b < 256; ++b) {
    table[static_cast<size_t>(b)] = IsPrintableLatin1(b) ? static_cast<char32_t>(b) : next++;
  }
  return table;
}

constexpr std::array<int16_t, kTableSize> MakeBackward() {
  std::array<int16_t, kTableSize> table{};
  table.fill(-1);
  const auto forward = MakeForward();
  for (int b = 0; b < 256; ++b) {
    table[forward[static_cast<size_t>(b)]] = static_cast<int16_t>(b);
  }
  return table;
}

constexpr auto kForward = MakeForward();
constexpr auto kBackward = MakeBackward();

}  // namespace

void AppendByteLevel(std::string& out, unsigned char byte) { AppendUtf8(out, kForward[byte]); }

std::string BytesToByteLevel(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() + bytes.size() / 4);
  for (const char c : bytes) AppendByteLevel(out, static_cast<unsigned char>(c));
  return out;
}

int ByteLevelByte(char32_t c) { return c < kTableSize ? kBackward[c] : -1; }

std::optional<std::string> ByteLevelToBytes(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const DecodedChar c = DecodeUtf8(text, i);
    const int byte = ByteLevelByte(c.code);
    if (byte < 0) return std::nullopt;
    out += static_cast<char>(byte);
    i += c.length;
  }
  return out;
}

}  // namespace nibble
