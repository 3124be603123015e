#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace nibble {

// The offset of the first byte that begins no well-formed UTF-8 character (overlong forms,
// surrogates and values above U+10FFFF are ill-formed), or npos.
size_t FindInvalidUtf8(std::string_view text);

// Writes the one to four bytes of a code point (not a surrogate) and returns the place behind.
char* AppendUtf8(uint32_t code_point, char* out);

}  // namespace nibble
