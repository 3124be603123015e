#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace nibble {

// GPT-2's spelling of bytes as characters (bytes_to_unicode in OpenAI's encoder.py): printable
// Latin-1 bytes are themselves, the other 68 are U+0100 … in order.

// The two-way table's forward side: every byte as its character, in UTF-8.
std::string BytesToByteLevel(std::string_view bytes);
void AppendByteLevel(std::string& out, unsigned char byte);
// Nothing when a character of text is none of the 256. text must be valid UTF-8.
std::optional<std::string> ByteLevelToBytes(std::string_view text);
// The byte of one character; -1 when it is none of the 256.
int ByteLevelByte(char32_t c);

}  // namespace nibble
