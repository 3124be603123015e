#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace nibble {

// Character classes as the Hugging Face library (Rust's char) defines them.
bool IsUnicodeWhitespace(char32_t c);   // property White_Space
bool IsUnicodeNumeric(char32_t c);      // categories Nd, Nl, No
bool IsUnicodeDecimal(char32_t c);      // category Nd
bool IsUnicodePunctuation(char32_t c);  // categories P*
bool IsUnicodeMark(char32_t c);         // categories Mn, Mc, Me
bool IsNonspacingMark(char32_t c);      // category Mn
bool IsUnicodeOther(char32_t c);        // categories Cc, Cf, Cn, Co
bool IsWordChar(char32_t c);            // \w of Rust's regex: letters, marks, digits, connectors
bool IsAsciiPunctuation(char32_t c);
bool IsCjkIdeograph(char32_t c);  // BERT's ranges of Chinese characters

void AppendLowercase(std::string& out, char32_t c);  // full mapping of one character

enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };
// text must be valid UTF-8.
std::string NormalizeUnicode(std::string_view text, NormalForm form);

// Length in bytes of the extended grapheme cluster at text[offset]; text must be valid UTF-8.
size_t GraphemeLength(std::string_view text, size_t offset);

}  // namespace nibble
