#include "grammar/code_points.h"

#include <utf8proc.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>

namespace nibble::grammar {
namespace {

constexpr char32_t kBeforeSurrogates = 0xD7FF;
constexpr char32_t kBehindSurrogates = 0xE000;

// Numbers from low to high as sequences of `count` digits of `bits` bits each, the most significant
// first: a range is cut where a digit overflows, until all digits vary on their own.
void SplitDigits(uint32_t low, uint32_t high, int count, int bits,
                 const std::function<void(const DigitRange*, int)>& visit) {
  for (int i = 1; i < count; ++i) {
    const uint32_t mask = (uint32_t{1} << (bits * i)) - 1;
    if ((low & ~mask) == (high & ~mask)) continue;
    if ((low & mask) != 0) {
      SplitDigits(low, low | mask, count, bits, visit);
      return SplitDigits((low | mask) + 1, high, count, bits, visit);
    }
    if ((high & mask) != mask) {
      SplitDigits(low, (high & ~mask) - 1, count, bits, visit);
      return SplitDigits(high & ~mask, high, count, bits, visit);
    }
  }
  DigitRange digits[4];
  const uint32_t last = (uint32_t{1} << bits) - 1;
  for (int i = 0; i < count; ++i) {
    const int shift = bits * (count - 1 - i);
    const uint32_t keep = i == 0 ? 0xFF : last;
    digits[i] = {static_cast<uint8_t>((low >> shift) & keep),
                 static_cast<uint8_t>((high >> shift) & keep)};
  }
  visit(digits, count);
}

void Utf8OfRange(char32_t low, char32_t high,
                 const std::function<void(const DigitRange*, int)>& visit) {
  struct Length {
    char32_t last;
    int count;
    uint8_t lead;
  };
  constexpr Length kLengths[] = {
      {0x7F, 1, 0}, {0x7FF, 2, 0xC0}, {0xFFFF, 3, 0xE0}, {kLastCodePoint, 4, 0xF0}};
  char32_t first = 0;
  for (const Length& length : kLengths) {
    const char32_t from = std::max(low, first);
    const char32_t to = std::min(high, length.last);
    first = length.last + 1;
    if (from > to) continue;
    const auto with_marks = [&](const DigitRange* digits, int count) {
      DigitRange bytes[4];
      for (int i = 0; i < count; ++i) {
        const auto mark = static_cast<uint8_t>(i == 0 ? length.lead : 0x80);
        bytes[i] = {static_cast<uint8_t>(digits[i].low | mark),
                    static_cast<uint8_t>(digits[i].high | mark)};
      }
      visit(bytes, count);
    };
    if (length.count == 1) {
      const DigitRange byte{static_cast<uint8_t>(from), static_cast<uint8_t>(to)};
      visit(&byte, 1);
    } else {
      SplitDigits(from, to, length.count, 6, with_marks);
    }
  }
}

constexpr std::string_view kCategoryNames[] = {
    "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
    "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};

std::string_view ShortCategory(std::string_view name) {
  constexpr std::pair<std::string_view, std::string_view> kLong[] = {{"Letter", "L"},
                                                                     {"Uppercase_Letter", "Lu"},
                                                                     {"Lowercase_Letter", "Ll"},
                                                                     {"Mark", "M"},
                                                                     {"Number", "N"},
                                                                     {"Decimal_Number", "Nd"},
                                                                     {"Punctuation", "P"},
                                                                     {"Symbol", "S"},
                                                                     {"Separator", "Z"},
                                                                     {"Space_Separator", "Zs"},
                                                                     {"Other", "C"},
                                                                     {"digit", "Nd"}};
  for (const auto& [spelled, code] : kLong) {
    if (spelled == name) return code;
  }
  return name;
}

}  // namespace

CodePointSet::CodePointSet(std::initializer_list<CodePointRange> ranges) {
  for (const CodePointRange& range : ranges) Add(range.low, range.high);
  Ranges();  // a constant may be shared by threads
}

void CodePointSet::Add(char32_t low, char32_t high) {
  if (low > high) return;
  ranges_.push_back({low, high});
  sorted_ = false;
}

void CodePointSet::Add(const CodePointSet& other) {
  for (const CodePointRange& range : other.Ranges()) Add(range.low, range.high);
}

const std::vector<CodePointRange>& CodePointSet::Ranges() const {
  if (sorted_) return ranges_;
  std::ranges::sort(ranges_, {}, &CodePointRange::low);
  size_t kept = 0;
  for (size_t i = 1; i < ranges_.size(); ++i) {
    if (ranges_[i].low <= ranges_[kept].high + 1) {
      ranges_[kept].high = std::max(ranges_[kept].high, ranges_[i].high);
    } else {
      ranges_[++kept] = ranges_[i];
    }
  }
  ranges_.resize(ranges_.empty() ? 0 : kept + 1);
  sorted_ = true;
  return ranges_;
}

CodePointSet CodePointSet::Complement() const {
  CodePointSet out;
  char32_t next = 0;
  for (const CodePointRange& range : Ranges()) {
    if (range.low > next) out.Add(next, range.low - 1);
    next = range.high + 1;
  }
  out.Add(next, kLastCodePoint);
  return out;
}

CodePointSet CodePointSet::Intersect(const CodePointSet& other) const {
  CodePointSet out;
  const auto& a = Ranges();
  const auto& b = other.Ranges();
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    out.Add(std::max(a[i].low, b[j].low), std::min(a[i].high, b[j].high));
    if (a[i].high < b[j].high) {
      ++i;
    } else {
      ++j;
    }
  }
  return out;
}

bool CodePointSet::Contains(char32_t c) const {
  const auto& ranges = Ranges();
  const auto behind = std::ranges::upper_bound(ranges, c, {}, &CodePointRange::low);
  return behind != ranges.begin() && c <= std::prev(behind)->high;
}

void VisitUtf8(const CodePointSet& set, const std::function<void(const DigitRange*, int)>& visit) {
  for (const CodePointRange& range : set.Ranges()) {
    if (range.low <= kBeforeSurrogates) {
      Utf8OfRange(range.low, std::min(range.high, kBeforeSurrogates), visit);
    }
    if (range.high >= kBehindSurrogates) {
      Utf8OfRange(std::max(range.low, kBehindSurrogates), range.high, visit);
    }
  }
}

void VisitHex4(uint32_t low, uint32_t high,
               const std::function<void(const DigitRange*, int)>& visit) {
  SplitDigits(low, high, 4, 4, visit);
}

const CodePointSet& UnicodeCategory(std::string_view name) {
  static std::mutex mutex;
  static std::map<std::string, CodePointSet, std::less<>> known;
  const std::scoped_lock lock(mutex);
  const std::string code(ShortCategory(name));
  const auto found = known.find(code);
  if (found != known.end()) return found->second;
  CodePointSet set;
  bool wanted[std::size(kCategoryNames)] = {};
  bool any = false;
  for (size_t i = 0; i < std::size(kCategoryNames); ++i) {
    wanted[i] = code == kCategoryNames[i] || (code.size() == 1 && code[0] == kCategoryNames[i][0]);
    any = any || wanted[i];
  }
  if (!any) {
    static const CodePointSet kNone;
    return kNone;
  }
  for (char32_t c = 0; c <= kLastCodePoint; ++c) {
    if (wanted[utf8proc_category(static_cast<utf8proc_int32_t>(c))]) set.Add(c);
  }
  set.Ranges();
  return known.emplace(code, std::move(set)).first->second;
}

}  // namespace nibble::grammar
