#include "tokenizer/jinja_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

namespace nibble::jinja {
namespace {

struct Special {
  uint32_t cp;
  const char* text;
};
struct CodeRange {
  uint32_t first, last;
};

// Upper-case and title-case mappings to more than one code point (SpecialCasing.txt, Unicode 14).
constexpr Special kUpper[] = {
    {0x00DF, "\x53\x53"},
    {0x0149, "\xca\xbc\x4e"},
    {0x01F0, "\x4a\xcc\x8c"},
    {0x0390, "\xce\x99\xcc\x88\xcc\x81"},
    {0x03B0, "\xce\xa5\xcc\x88\xcc\x81"},
    {0x0587, "\xd4\xb5\xd5\x92"},
    {0x1E96, "\x48\xcc\xb1"},
    {0x1E97, "\x54\xcc\x88"},
    {0x1E98, "\x57\xcc\x8a"},
    {0x1E99, "\x59\xcc\x8a"},
    {0x1E9A, "\x41\xca\xbe"},
    {0x1F50, "\xce\xa5\xcc\x93"},
    {0x1F52, "\xce\xa5\xcc\x93\xcc\x80"},
    {0x1F54, "\xce\xa5\xcc\x93\xcc\x81"},
    {0x1F56, "\xce\xa5\xcc\x93\xcd\x82"},
    {0x1F80, "\xe1\xbc\x88\xce\x99"},
    {0x1F81, "\xe1\xbc\x89\xce\x99"},
    {0x1F82, "\xe1\xbc\x8a\xce\x99"},
    {0x1F83, "\xe1\xbc\x8b\xce\x99"},
    {0x1F84, "\xe1\xbc\x8c\xce\x99"},
    {0x1F85, "\xe1\xbc\x8d\xce\x99"},
    {0x1F86, "\xe1\xbc\x8e\xce\x99"},
    {0x1F87, "\xe1\xbc\x8f\xce\x99"},
    {0x1F88, "\xe1\xbc\x88\xce\x99"},
    {0x1F89, "\xe1\xbc\x89\xce\x99"},
    {0x1F8A, "\xe1\xbc\x8a\xce\x99"},
    {0x1F8B, "\xe1\xbc\x8b\xce\x99"},
    {0x1F8C, "\xe1\xbc\x8c\xce\x99"},
    {0x1F8D, "\xe1\xbc\x8d\xce\x99"},
    {0x1F8E, "\xe1\xbc\x8e\xce\x99"},
    {0x1F8F, "\xe1\xbc\x8f\xce\x99"},
    {0x1F90, "\xe1\xbc\xa8\xce\x99"},
    {0x1F91, "\xe1\xbc\xa9\xce\x99"},
    {0x1F92, "\xe1\xbc\xaa\xce\x99"},
    {0x1F93, "\xe1\xbc\xab\xce\x99"},
    {0x1F94, "\xe1\xbc\xac\xce\x99"},
    {0x1F95, "\xe1\xbc\xad\xce\x99"},
    {0x1F96, "\xe1\xbc\xae\xce\x99"},
    {0x1F97, "\xe1\xbc\xaf\xce\x99"},
    {0x1F98, "\xe1\xbc\xa8\xce\x99"},
    {0x1F99, "\xe1\xbc\xa9\xce\x99"},
    {0x1F9A, "\xe1\xbc\xaa\xce\x99"},
    {0x1F9B, "\xe1\xbc\xab\xce\x99"},
    {0x1F9C, "\xe1\xbc\xac\xce\x99"},
    {0x1F9D, "\xe1\xbc\xad\xce\x99"},
    {0x1F9E, "\xe1\xbc\xae\xce\x99"},
    {0x1F9F, "\xe1\xbc\xaf\xce\x99"},
    {0x1FA0, "\xe1\xbd\xa8\xce\x99"},
    {0x1FA1, "\xe1\xbd\xa9\xce\x99"},
    {0x1FA2, "\xe1\xbd\xaa\xce\x99"},
    {0x1FA3, "\xe1\xbd\xab\xce\x99"},
    {0x1FA4, "\xe1\xbd\xac\xce\x99"},
    {0x1FA5, "\xe1\xbd\xad\xce\x99"},
    {0x1FA6, "\xe1\xbd\xae\xce\x99"},
    {0x1FA7, "\xe1\xbd\xaf\xce\x99"},
    {0x1FA8, "\xe1\xbd\xa8\xce\x99"},
    {0x1FA9, "\xe1\xbd\xa9\xce\x99"},
    {0x1FAA, "\xe1\xbd\xaa\xce\x99"},
    {0x1FAB, "\xe1\xbd\xab\xce\x99"},
    {0x1FAC, "\xe1\xbd\xac\xce\x99"},
    {0x1FAD, "\xe1\xbd\xad\xce\x99"},
    {0x1FAE, "\xe1\xbd\xae\xce\x99"},
    {0x1FAF, "\xe1\xbd\xaf\xce\x99"},
    {0x1FB2, "\xe1\xbe\xba\xce\x99"},
    {0x1FB3, "\xce\x91\xce\x99"},
    {0x1FB4, "\xce\x86\xce\x99"},
    {0x1FB6, "\xce\x91\xcd\x82"},
    {0x1FB7, "\xce\x91\xcd\x82\xce\x99"},
    {0x1FBC, "\xce\x91\xce\x99"},
    {0x1FC2, "\xe1\xbf\x8a\xce\x99"},
    {0x1FC3, "\xce\x97\xce\x99"},
    {0x1FC4, "\xce\x89\xce\x99"},
    {0x1FC6, "\xce\x97\xcd\x82"},
    {0x1FC7, "\xce\x97\xcd\x82\xce\x99"},
    {0x1FCC, "\xce\x97\xce\x99"},
    {0x1FD2, "\xce\x99\xcc\x88\xcc\x80"},
    {0x1FD3, "\xce\x99\xcc\x88\xcc\x81"},
    {0x1FD6, "\xce\x99\xcd\x82"},
    {0x1FD7, "\xce\x99\xcc\x88\xcd\x82"},
    {0x1FE2, "\xce\xa5\xcc\x88\xcc\x80"},
    {0x1FE3, "\xce\xa5\xcc\x88\xcc\x81"},
    {0x1FE4, "\xce\xa1\xcc\x93"},
    {0x1FE6, "\xce\xa5\xcd\x82"},
    {0x1FE7, "\xce\xa5\xcc\x88\xcd\x82"},
    {0x1FF2, "\xe1\xbf\xba\xce\x99"},
    {0x1FF3, "\xce\xa9\xce\x99"},
    {0x1FF4, "\xce\x8f\xce\x99"},
    {0x1FF6, "\xce\xa9\xcd\x82"},
    {0x1FF7, "\xce\xa9\xcd\x82\xce\x99"},
    {0x1FFC, "\xce\xa9\xce\x99"},
    {0xFB00, "\x46\x46"},
    {0xFB01, "\x46\x49"},
    {0xFB02, "\x46\x4c"},
    {0xFB03, "\x46\x46\x49"},
    {0xFB04, "\x46\x46\x4c"},
    {0xFB05, "\x53\x54"},
    {0xFB06, "\x53\x54"},
    {0xFB13, "\xd5\x84\xd5\x86"},
    {0xFB14, "\xd5\x84\xd4\xb5"},
    {0xFB15, "\xd5\x84\xd4\xbb"},
    {0xFB16, "\xd5\x8e\xd5\x86"},
    {0xFB17, "\xd5\x84\xd4\xbd"},
};

constexpr Special kTitle[] = {
    {0x00DF, "\x53\x73"},
    {0x0587, "\xd4\xb5\xd6\x82"},
    {0x1FB2, "\xe1\xbe\xba\xcd\x85"},
    {0x1FB4, "\xce\x86\xcd\x85"},
    {0x1FB7, "\xce\x91\xcd\x82\xcd\x85"},
    {0x1FC2, "\xe1\xbf\x8a\xcd\x85"},
    {0x1FC4, "\xce\x89\xcd\x85"},
    {0x1FC7, "\xce\x97\xcd\x82\xcd\x85"},
    {0x1FF2, "\xe1\xbf\xba\xcd\x85"},
    {0x1FF4, "\xce\x8f\xcd\x85"},
    {0x1FF7, "\xce\xa9\xcd\x82\xcd\x85"},
    {0xFB00, "\x46\x66"},
    {0xFB01, "\x46\x69"},
    {0xFB02, "\x46\x6c"},
    {0xFB03, "\x46\x66\x69"},
    {0xFB04, "\x46\x66\x6c"},
    {0xFB05, "\x53\x74"},
    {0xFB06, "\x53\x74"},
    {0xFB13, "\xd5\x84\xd5\xb6"},
    {0xFB14, "\xd5\x84\xd5\xa5"},
    {0xFB15, "\xd5\x84\xd5\xab"},
    {0xFB16, "\xd5\x8e\xd5\xb6"},
    {0xFB17, "\xd5\x84\xd5\xad"},
};

// isdigit but not isdecimal; isnumeric outside Nd, Nl and No.
constexpr CodeRange kDigits[] = {
    {0x00B2, 0x00B3},   {0x00B9, 0x00B9},   {0x1369, 0x1371},   {0x19DA, 0x19DA},
    {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
    {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
    {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
    {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A},
};

constexpr CodeRange kNumeric[] = {
    {0x3405, 0x3405},   {0x3483, 0x3483},   {0x382A, 0x382A},   {0x3B4D, 0x3B4D},
    {0x4E00, 0x4E00},   {0x4E03, 0x4E03},   {0x4E07, 0x4E07},   {0x4E09, 0x4E09},
    {0x4E5D, 0x4E5D},   {0x4E8C, 0x4E8C},   {0x4E94, 0x4E94},   {0x4E96, 0x4E96},
    {0x4EBF, 0x4EC0},   {0x4EDF, 0x4EDF},   {0x4EE8, 0x4EE8},   {0x4F0D, 0x4F0D},
    {0x4F70, 0x4F70},   {0x5104, 0x5104},   {0x5146, 0x5146},   {0x5169, 0x5169},
    {0x516B, 0x516B},   {0x516D, 0x516D},   {0x5341, 0x5341},   {0x5343, 0x5345},
    {0x534C, 0x534C},   {0x53C1, 0x53C4},   {0x56DB, 0x56DB},   {0x58F1, 0x58F1},
    {0x58F9, 0x58F9},   {0x5E7A, 0x5E7A},   {0x5EFE, 0x5EFF},   {0x5F0C, 0x5F0E},
    {0x5F10, 0x5F10},   {0x62FE, 0x62FE},   {0x634C, 0x634C},   {0x67D2, 0x67D2},
    {0x6F06, 0x6F06},   {0x7396, 0x7396},   {0x767E, 0x767E},   {0x8086, 0x8086},
    {0x842C, 0x842C},   {0x8CAE, 0x8CAE},   {0x8CB3, 0x8CB3},   {0x8D30, 0x8D30},
    {0x9621, 0x9621},   {0x9646, 0x9646},   {0x964C, 0x964C},   {0x9678, 0x9678},
    {0x96F6, 0x96F6},   {0xF96B, 0xF96B},   {0xF973, 0xF973},   {0xF978, 0xF978},
    {0xF9B2, 0xF9B2},   {0xF9D1, 0xF9D1},   {0xF9D3, 0xF9D3},   {0xF9FD, 0xF9FD},
    {0x20001, 0x20001}, {0x20064, 0x20064}, {0x200E2, 0x200E2}, {0x20121, 0x20121},
    {0x2092A, 0x2092A}, {0x20983, 0x20983}, {0x2098C, 0x2098C}, {0x2099C, 0x2099C},
    {0x20AEA, 0x20AEA}, {0x20AFD, 0x20AFD}, {0x20B19, 0x20B19}, {0x22390, 0x22390},
    {0x22998, 0x22998}, {0x23B1B, 0x23B1B}, {0x2626D, 0x2626D}, {0x2F890, 0x2F890},
};

template <size_t N>
const char* FindSpecial(const Special (&table)[N], uint32_t cp) {
  const auto* it = std::lower_bound(std::begin(table), std::end(table), cp,
                                    [](const Special& s, uint32_t c) { return s.cp < c; });
  return it != std::end(table) && it->cp == cp ? it->text : nullptr;
}

template <size_t N>
bool InRanges(const CodeRange (&table)[N], uint32_t cp) {
  return std::any_of(std::begin(table), std::end(table),
                     [cp](const CodeRange& r) { return cp >= r.first && cp <= r.last; });
}

utf8proc_category_t Category(uint32_t cp) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(cp));
}

bool IsCased(uint32_t cp) { return IsUpper(cp) || IsLower(cp) || IsTitle(cp); }

// Skipped on the look-out for a word's border around a capital sigma.
bool IsCaseIgnorable(uint32_t cp) {
  switch (Category(cp)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return cp == '\'' || cp == '.' || cp == ':' || cp == 0xB7 || cp == 0x2019;
  }
}

constexpr uint32_t kCapitalSigma = 0x3A3;

bool IsFinalSigma(const std::vector<uint32_t>& text, size_t at) {
  size_t before = at;
  while (before > 0 && IsCaseIgnorable(text[before - 1])) --before;
  if (before == 0 || !IsCased(text[before - 1])) return false;
  size_t after = at + 1;
  while (after < text.size() && IsCaseIgnorable(text[after])) ++after;
  return after == text.size() || !IsCased(text[after]);
}

std::vector<uint32_t> Decode(std::string_view text) {
  std::vector<uint32_t> out;
  for (size_t pos = 0; pos < text.size();) out.push_back(NextCodePoint(text, pos));
  return out;
}

void AppendUpper(std::string& out, uint32_t cp) {
  if (const char* special = FindSpecial(kUpper, cp)) {
    out += special;
  } else {
    AppendCodePoint(out, uint32_t(utf8proc_toupper(utf8proc_int32_t(cp))));
  }
}

void AppendTitle(std::string& out, uint32_t cp) {
  const char* special = FindSpecial(kTitle, cp);
  if (special) {
    out += special;
  } else {
    AppendCodePoint(out, uint32_t(utf8proc_totitle(utf8proc_int32_t(cp))));
  }
}

void AppendLower(std::string& out, const std::vector<uint32_t>& text, size_t at) {
  const uint32_t cp = text[at];
  if (cp == 0x130) {
    out += "i\xcc\x87";
  } else if (cp == kCapitalSigma) {
    AppendCodePoint(out, IsFinalSigma(text, at) ? 0x3C2 : 0x3C3);
  } else {
    AppendCodePoint(out, uint32_t(utf8proc_tolower(utf8proc_int32_t(cp))));
  }
}

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return c < 128; });
}

}  // namespace

uint32_t NextCodePoint(std::string_view text, size_t& pos) {
  const auto lead = static_cast<unsigned char>(text[pos]);
  if (lead < 0x80) return text[pos++];
  const int extra = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
  static constexpr uint32_t kSmallest[] = {0, 0x80, 0x800, 0x10000};
  bool valid = lead >= 0xC2 && lead <= 0xF4 && pos + extra < text.size();
  uint32_t cp = lead & (0x3Fu >> extra);
  for (int i = 1; valid && i <= extra; ++i) {
    const auto c = static_cast<unsigned char>(text[pos + i]);
    valid = (c & 0xC0) == 0x80;
    cp = cp << 6 | (c & 0x3F);
  }
  if (!valid || cp < kSmallest[extra] || cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000)) {
    ++pos;
    return 0xDC00 + lead;
  }
  pos += extra + 1;
  return cp;
}

void AppendCodePoint(std::string& out, uint32_t cp) {
  if (cp < 0x80) {
    out += char(cp);
  } else if (cp < 0x800) {
    out += char(0xC0 | cp >> 6);
    out += char(0x80 | (cp & 0x3F));
  } else if (cp >= 0xDC80 && cp < 0xDD00) {
    out += char(cp - 0xDC00);
  } else if (cp < 0x10000) {
    out += char(0xE0 | cp >> 12);
    out += char(0x80 | (cp >> 6 & 0x3F));
    out += char(0x80 | (cp & 0x3F));
  } else {
    out += char(0xF0 | cp >> 18);
    out += char(0x80 | (cp >> 12 & 0x3F));
    out += char(0x80 | (cp >> 6 & 0x3F));
    out += char(0x80 | (cp & 0x3F));
  }
}

size_t CountCodePoints(std::string_view text) {
  if (IsAscii(text)) return text.size();
  size_t count = 0;
  for (size_t pos = 0; pos < text.size(); ++count) NextCodePoint(text, pos);
  return count;
}

size_t ByteOffset(std::string_view text, size_t index) {
  size_t pos = 0;
  while (index-- > 0 && pos < text.size()) NextCodePoint(text, pos);
  return pos;
}

std::vector<std::string_view> SplitCodePoints(std::string_view text) {
  std::vector<std::string_view> out;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    NextCodePoint(text, pos);
    out.push_back(text.substr(begin, pos - begin));
  }
  return out;
}

bool IsSpace(uint32_t cp) {
  if (cp < 0x80) return cp == ' ' || (cp >= 9 && cp <= 13) || (cp >= 0x1C && cp <= 0x1F);
  return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) ||
         cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

bool IsPrintable(uint32_t cp) {
  if (cp == ' ') return true;
  switch (Category(cp)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool IsAlpha(uint32_t cp) {
  const auto category = Category(cp);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsDecimal(uint32_t cp) { return Category(cp) == UTF8PROC_CATEGORY_ND; }
bool IsDigit(uint32_t cp) { return IsDecimal(cp) || InRanges(kDigits, cp); }
bool IsNumeric(uint32_t cp) {
  const auto category = Category(cp);
  return (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) ||
         InRanges(kNumeric, cp);
}
bool IsUpper(uint32_t cp) {
  return cp < 128 ? cp >= 'A' && cp <= 'Z' : utf8proc_isupper(utf8proc_int32_t(cp)) != 0;
}
bool IsLower(uint32_t cp) {
  return cp < 128 ? cp >= 'a' && cp <= 'z' : utf8proc_islower(utf8proc_int32_t(cp)) != 0;
}
bool IsTitle(uint32_t cp) { return Category(cp) == UTF8PROC_CATEGORY_LT; }

bool IsIdentifierStart(uint32_t cp) {
  return cp == '_' || IsAlpha(cp) || Category(cp) == UTF8PROC_CATEGORY_NL;
}
bool IsIdentifierPart(uint32_t cp) {
  const auto category = Category(cp);
  return IsIdentifierStart(cp) || category == UTF8PROC_CATEGORY_ND ||
         category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         category == UTF8PROC_CATEGORY_PC;
}

std::string ToUpper(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) AppendUpper(out, NextCodePoint(text, pos));
  return out;
}

std::string ToLower(std::string_view text) {
  std::string out;
  if (IsAscii(text)) {
    out = text;
    for (char& c : out) c = c >= 'A' && c <= 'Z' ? char(c + 32) : c;
    return out;
  }
  const auto cps = Decode(text);
  for (size_t i = 0; i < cps.size(); ++i) AppendLower(out, cps, i);
  return out;
}

std::string ToTitleCase(std::string_view text) {
  const auto cps = Decode(text);
  std::string out;
  bool in_word = false;
  for (size_t i = 0; i < cps.size(); ++i) {
    if (in_word) {
      AppendLower(out, cps, i);
    } else {
      AppendTitle(out, cps[i]);
    }
    in_word = IsCased(cps[i]);
  }
  return out;
}

std::string CaseFold(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const uint32_t cp = NextCodePoint(text, pos);
    utf8proc_int32_t folded[8];
    int last_class = 0;
    const auto n =
        utf8proc_decompose_char(utf8proc_int32_t(cp), folded, 8, UTF8PROC_CASEFOLD, &last_class);
    if (n < 1 || n > 8) {
      AppendCodePoint(out, cp);
      continue;
    }
    for (int i = 0; i < n; ++i) AppendCodePoint(out, uint32_t(folded[i]));
  }
  return out;
}

std::string Capitalize(std::string_view text) {
  const auto cps = Decode(text);
  std::string out;
  for (size_t i = 0; i < cps.size(); ++i) {
    if (i == 0) {
      AppendTitle(out, cps[0]);
    } else {
      AppendLower(out, cps, i);
    }
  }
  return out;
}

std::string SwapCase(std::string_view text) {
  const auto cps = Decode(text);
  std::string out;
  for (size_t i = 0; i < cps.size(); ++i) {
    if (IsUpper(cps[i])) {
      AppendLower(out, cps, i);
    } else if (IsLower(cps[i])) {
      AppendUpper(out, cps[i]);
    } else {
      AppendCodePoint(out, cps[i]);
    }
  }
  return out;
}

std::string_view StripLeft(std::string_view text) {
  size_t pos = 0;
  while (pos < text.size()) {
    size_t next = pos;
    if (!IsSpace(NextCodePoint(text, next))) break;
    pos = next;
  }
  return text.substr(pos);
}

namespace {
// Start of the last code point of a non-empty text.
size_t LastStart(std::string_view text) {
  size_t start = text.size() - 1;
  while (start > 0 && text.size() - start < 4 && (text[start] & 0xC0) == 0x80) --start;
  size_t pos = start;
  NextCodePoint(text, pos);
  return pos == text.size() ? start : text.size() - 1;
}
}  // namespace

std::string_view StripRight(std::string_view text) {
  while (!text.empty()) {
    const size_t start = LastStart(text);
    size_t pos = start;
    if (!IsSpace(NextCodePoint(text, pos))) break;
    text = text.substr(0, start);
  }
  return text;
}

std::string_view StripLeft(std::string_view text, std::string_view chars) {
  const auto set = Decode(chars);
  while (!text.empty()) {
    size_t pos = 0;
    if (std::ranges::find(set, NextCodePoint(text, pos)) == set.end()) break;
    text = text.substr(pos);
  }
  return text;
}

std::string_view StripRight(std::string_view text, std::string_view chars) {
  const auto set = Decode(chars);
  while (!text.empty()) {
    const size_t start = LastStart(text);
    size_t pos = start;
    if (std::ranges::find(set, NextCodePoint(text, pos)) == set.end()) break;
    text = text.substr(0, start);
  }
  return text;
}

std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = pos;
    const uint32_t cp = NextCodePoint(text, pos);
    const bool is_break = (cp >= 10 && cp <= 13) || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 ||
                          cp == 0x2028 || cp == 0x2029;
    if (!is_break) continue;
    if (cp == '\r' && pos < text.size() && text[pos] == '\n') ++pos;
    lines.push_back(text.substr(begin, (keep_ends ? pos : end) - begin));
    begin = pos;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to,
                       int64_t count) {
  std::string out;
  if (count < 0) count = INT64_MAX;
  if (from.empty()) {  // between all code points and at both ends
    size_t pos = 0;
    while (count-- > 0) {
      out += to;
      if (pos == text.size()) return out;
      const size_t begin = pos;
      NextCodePoint(text, pos);
      out += text.substr(begin, pos - begin);
    }
    out += text.substr(pos);
    return out;
  }
  size_t pos = 0;
  for (size_t at; count > 0 && (at = text.find(from, pos)) != text.npos; --count) {
    out += text.substr(pos, at - pos);
    out += to;
    pos = at + from.size();
  }
  out += text.substr(pos);
  return out;
}

}  // namespace nibble::jinja
