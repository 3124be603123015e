#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace nibble::grammar {

inline constexpr char32_t kLastCodePoint = 0x10FFFF;

struct CodePointRange {
  char32_t low = 0;
  char32_t high = 0;  // included
  bool operator==(const CodePointRange&) const = default;
};

// A set of Unicode code points: ascending ranges that neither overlap nor touch.
class CodePointSet {
 public:
  CodePointSet() = default;
  CodePointSet(std::initializer_list<CodePointRange> ranges);

  void Add(char32_t low, char32_t high);
  void Add(char32_t c) { Add(c, c); }
  void Add(const CodePointSet& other);

  static CodePointSet All() { return {{0, kLastCodePoint}}; }
  CodePointSet Complement() const;
  CodePointSet Intersect(const CodePointSet& other) const;
  CodePointSet Minus(const CodePointSet& other) const { return Intersect(other.Complement()); }

  bool Contains(char32_t c) const;
  bool empty() const { return Ranges().empty(); }
  const std::vector<CodePointRange>& Ranges() const;
  bool operator==(const CodePointSet& other) const { return Ranges() == other.Ranges(); }

 private:
  mutable std::vector<CodePointRange> ranges_;
  mutable bool sorted_ = true;
};

// One digit of a number in some base, from low to high.
struct DigitRange {
  uint8_t low = 0;
  uint8_t high = 0;
  bool operator==(const DigitRange&) const = default;
};

// Byte sequences that together are the UTF-8 of exactly the set's characters (surrogates left out):
// visit(ranges, count) for each, count 1 to 4. After Thompson's construction in "Regular expression
// matching in the wild" (Cox 2010).
void VisitUtf8(const CodePointSet& set, const std::function<void(const DigitRange*, int)>& visit);

// Sequences of four hexadecimal digits (values 0 to 15) that together are exactly the numbers from
// low to high, both below 65,536.
void VisitHex4(uint32_t low, uint32_t high,
               const std::function<void(const DigitRange*, int)>& visit);

// The characters of a general category ("L", "Lu", "Nd", …) or script-free property name; empty
// when there is none of that name. Computed once per name.
const CodePointSet& UnicodeCategory(std::string_view name);

}  // namespace nibble::grammar
