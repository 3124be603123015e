#include "tokenizer/unicode.h"

#include <utf8proc.h>

#include <cstdlib>

#include "base/utf8.h"

namespace nibble {
namespace {

utf8proc_category_t Category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

// Characters of Alphabetic that are neither letters nor marks nor Nl: the circled Latin letters
// and the squared ones.
bool IsOtherAlphabetic(char32_t c) {
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

}  // namespace

bool IsUnicodeWhitespace(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsUnicodeNumeric(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  const auto category = Category(c);
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_NO;
}

bool IsUnicodeDecimal(char32_t c) {
  return c < 0x80 ? c >= '0' && c <= '9' : Category(c) == UTF8PROC_CATEGORY_ND;
}

bool IsUnicodePunctuation(char32_t c) {
  const auto category = Category(c);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool IsUnicodeMark(char32_t c) {
  const auto category = Category(c);
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

bool IsNonspacingMark(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_MN; }

bool IsUnicodeOther(char32_t c) {
  const auto category = Category(c);
  return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
         category == UTF8PROC_CATEGORY_CN || category == UTF8PROC_CATEGORY_CO;
}

bool IsWordChar(char32_t c) {
  if (c < 0x80) return std::isalnum(static_cast<int>(c)) != 0 || c == '_';
  const auto category = Category(c);
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_ME) ||
         category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_PC || c == 0x200C || c == 0x200D || IsOtherAlphabetic(c);
}

bool IsAsciiPunctuation(char32_t c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
         (c >= '{' && c <= '~');
}

bool IsCjkIdeograph(char32_t c) {
  // 0x2B920 for 0x2B820 is the reference's own slip, kept so that ids agree.
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

void AppendLowercase(std::string& out, char32_t c) {
  if (c == 0x130) {  // the one character whose lower case is two
    out += "i\xCC\x87";
    return;
  }
  AppendUtf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

std::string NormalizeUnicode(std::string_view text, NormalForm form) {
  int options = UTF8PROC_STABLE;
  switch (form) {
    case NormalForm::kNfc:
      options |= UTF8PROC_COMPOSE;
      break;
    case NormalForm::kNfd:
      options |= UTF8PROC_DECOMPOSE;
      break;
    case NormalForm::kNfkc:
      options |= UTF8PROC_COMPOSE | UTF8PROC_COMPAT;
      break;
    case NormalForm::kNfkd:
      options |= UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
      break;
  }
  utf8proc_uint8_t* buffer = nullptr;
  const utf8proc_ssize_t n = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                          static_cast<utf8proc_ssize_t>(text.size()), &buffer,
                                          static_cast<utf8proc_option_t>(options));
  if (n < 0) return std::string(text);  // only for invalid UTF-8, which callers replace before
  std::string out(reinterpret_cast<const char*>(buffer), static_cast<size_t>(n));
  std::free(buffer);
  return out;
}

size_t GraphemeLength(std::string_view text, size_t offset) {
  DecodedChar previous = DecodeUtf8(text, offset);
  size_t end = offset + previous.length;
  utf8proc_int32_t state = 0;
  while (end < text.size()) {
    const DecodedChar next = DecodeUtf8(text, end);
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(previous.code),
                                         static_cast<utf8proc_int32_t>(next.code), &state)) {
      break;
    }
    end += next.length;
    previous = next;
  }
  return end - offset;
}

}  // namespace nibble
