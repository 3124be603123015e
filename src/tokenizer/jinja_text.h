#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Text as Python sees it: UTF-8 in, code points out. Invalid bytes count as one code point each.
namespace nibble::jinja {

// Decodes the code point at `pos` and moves past it. An invalid byte b reads as U+DC00 + b
// (Python's surrogateescape), which Append writes back as that byte.
uint32_t NextCodePoint(std::string_view text, size_t& pos);
void AppendCodePoint(std::string& out, uint32_t cp);

size_t CountCodePoints(std::string_view text);
// Byte offset of code point `index` (at most the length).
size_t ByteOffset(std::string_view text, size_t index);
std::vector<std::string_view> SplitCodePoints(std::string_view text);

bool IsSpace(uint32_t cp);      // str.isspace
bool IsPrintable(uint32_t cp);  // str.isprintable
bool IsAlpha(uint32_t cp);
bool IsDecimal(uint32_t cp);
bool IsDigit(uint32_t cp);
bool IsNumeric(uint32_t cp);
bool IsUpper(uint32_t cp);
bool IsLower(uint32_t cp);
bool IsTitle(uint32_t cp);
bool IsIdentifierStart(uint32_t cp);
bool IsIdentifierPart(uint32_t cp);
inline bool IsAlnum(uint32_t cp) { return IsAlpha(cp) || IsNumeric(cp); }
inline bool IsWord(uint32_t cp) { return cp == '_' || IsAlnum(cp); }  // \w of Python's re

// Python's full case mappings (SpecialCasing.txt, final sigma).
std::string ToUpper(std::string_view text);
std::string ToLower(std::string_view text);
std::string ToTitleCase(std::string_view text);  // str.title
std::string CaseFold(std::string_view text);
std::string Capitalize(std::string_view text);
std::string SwapCase(std::string_view text);

std::string_view StripLeft(std::string_view text);  // white space
std::string_view StripRight(std::string_view text);
std::string_view StripLeft(std::string_view text, std::string_view chars);
std::string_view StripRight(std::string_view text, std::string_view chars);

// str.splitlines: \n, \r, \r\n, \v, \f, \x1c-\x1e, \x85, U+2028, U+2029.
std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends);

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to,
                       int64_t count);

}  // namespace nibble::jinja
