#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "grammar/char_dfa.h"

namespace nibble::grammar {

// A set of numbers as the texts that spell them: -?(0|[1-9][0-9]*)(\.[0-9]+)?. Sets made here hold
// every such text of a number or none, so that intersections, unions and complements are those of
// numbers. Texts with an exponent belong only to the set of all numbers, not to a narrower one.
class NumberSet {
 public:
  static NumberSet All();
  static NumberSet None();
  static NumberSet Integers();
  enum class Order : uint8_t { kEqual, kAtLeast, kAbove, kAtMost, kBelow };
  // Numbers that compare so with a JSON number. Errors: one with too many digits.
  static Result<NumberSet> Compared(Order order, std::string_view number);
  // Errors: a divisor with too many digits, or none above 0.
  static Result<NumberSet> MultiplesOf(std::string_view number);

  Result<NumberSet> Intersect(const NumberSet& other) const;
  Result<NumberSet> Unite(const NumberSet& other) const;
  Result<NumberSet> Complement() const;
  bool IsEmpty() const { return !exponents_ && decimals_.IsEmpty(); }
  bool IsAll() const { return exponents_; }

  // The texts that an answer may use: integers without fraction and without -0 where there are only
  // integers, else at most 15 digits with a fraction, so that a double tells them apart.
  Result<CharDfa> Spellings() const;

 private:
  NumberSet(CharDfa decimals, bool exponents)
      : decimals_(std::move(decimals)), exponents_(exponents) {}

  CharDfa decimals_;
  bool exponents_ = false;
};

}  // namespace nibble::grammar
