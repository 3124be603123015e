#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace nibble {

inline constexpr char32_t kReplacementChar = 0xFFFD;

// Length of the valid UTF-8 character at the start of text (no surrogates, no overlong forms);
// 0 when there is none. An empty text gives 0.
size_t Utf8CharLength(std::string_view text);

// Length of the maximal subpart of an ill-formed character at the start (Unicode 3.9, as Python's
// errors="replace"): the bytes that one U+FFFD stands for. At least 1 for a non-empty text.
size_t Utf8InvalidLength(std::string_view text);

// True when text (1 to 3 bytes) begins a character that more bytes could complete.
bool IsUtf8Prefix(std::string_view text);

struct DecodedChar {
  char32_t code = 0;
  uint8_t length = 0;
};
// The character at text[offset]; text must be valid there.
DecodedChar DecodeUtf8(std::string_view text, size_t offset);

// The character at text[offset], or U+FFFD and the length of the ill-formed part there.
DecodedChar DecodeUtf8Safely(std::string_view text, size_t offset);

void AppendUtf8(std::string& out, char32_t code);
// Writes the one to four bytes of a code point (not a surrogate) and returns the place behind.
char* AppendUtf8(char32_t code, char* out);

// The offset of the first byte that begins no valid character, or npos.
size_t FindInvalidUtf8(std::string_view text);
bool IsValidUtf8(std::string_view text);
// The text with U+FFFD for each ill-formed part.
std::string ReplaceInvalidUtf8(std::string_view text);

}  // namespace nibble
