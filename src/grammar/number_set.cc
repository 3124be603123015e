#include "grammar/number_set.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"

namespace nibble::grammar {
namespace {

constexpr int kMostDigits = 40;           // of a bound, before and behind the point
constexpr int64_t kMostDivisor = 20'000;  // without its point
constexpr int kMostSpelled = 15;          // digits that a double keeps

// Of constants: whoever asks first does not pay for them.
CharDfa WholeRegex(std::string_view pattern) {
  const CharDfa::Budget budget(INT64_MAX);
  const auto tree = ParseRegex(pattern);
  NIBBLE_CHECK(tree);
  auto dfa = CharDfa::OfRegex(*tree, true);
  NIBBLE_CHECK(dfa);
  return *std::move(dfa);
}

const CharDfa& AllDecimals() {
  static const CharDfa kDfa = WholeRegex("-?(0|[1-9][0-9]*)(\\.[0-9]+)?");
  return kDfa;
}

// A JSON number as its digits before and behind the point, without zeros that say nothing.
struct Decimal {
  bool negative = false;
  std::string whole;     // "0" at least
  std::string fraction;  // no 0 at its end
  bool zero() const { return whole == "0" && fraction.empty(); }
};

Result<Decimal> ReadDecimal(std::string_view text) {
  Decimal out;
  size_t at = 0;
  if (text.starts_with('-')) {
    out.negative = true;
    at = 1;
  }
  std::string digits;
  int point = 0;
  bool behind = false;
  for (; at < text.size() && text[at] != 'e' && text[at] != 'E'; ++at) {
    if (text[at] == '.') {
      behind = true;
    } else {
      digits += text[at];
      if (!behind) ++point;
    }
  }
  if (at < text.size()) {
    const std::string exponent(
        text.substr(at + 1 + (text.substr(at + 1).starts_with('+') ? 1 : 0)));
    if (exponent.size() > 4) return BadInput("{} has too many digits", text);
    point += std::atoi(exponent.c_str());
  }
  if (point > kMostDigits || point < -kMostDigits || std::ssize(digits) > kMostDigits) {
    return BadInput("{} has too many digits", text);
  }
  if (point < 0) {
    digits.insert(0, static_cast<size_t>(-point), '0');
    point = 0;
  }
  if (std::ssize(digits) < point) digits.append(static_cast<size_t>(point) - digits.size(), '0');
  out.whole = digits.substr(0, static_cast<size_t>(point));
  out.fraction = digits.substr(static_cast<size_t>(point));
  out.whole.erase(0, std::min(out.whole.find_first_not_of('0'), out.whole.size()));
  if (out.whole.empty()) out.whole = "0";
  while (out.fraction.ends_with('0')) out.fraction.pop_back();
  return out;
}

enum Sign : uint8_t { kLess = 1, kSame = 2, kMore = 4 };

// Builds automata over the digits of a number, states found as they are met.
template <class Key>
class DigitDfa {
 public:
  uint32_t Of(const Key& key) {
    const auto [found, is_new] = index_.try_emplace(key, static_cast<uint32_t>(keys_.size()));
    if (is_new) {
      keys_.push_back(key);
      states_.emplace_back();
    }
    return found->second;
  }
  void Edge(uint32_t from, char c, const Key& to) {
    const uint32_t target = Of(to);
    const auto code = static_cast<char32_t>(c);
    states_[from].edges.push_back({code, code, target});
  }
  size_t size() const { return keys_.size(); }
  const Key& key(size_t i) const { return keys_[i]; }
  void Final(size_t i, bool final) { states_[i].final = final; }

  CharDfa Finish() {
    for (CharDfa::State& state : states_) std::ranges::sort(state.edges, {}, &CharDfa::Edge::low);
    return CharDfa(std::move(states_)).Reduced();
  }

 private:
  std::map<Key, uint32_t> index_;
  std::vector<Key> keys_;
  std::vector<CharDfa::State> states_;
};

// Where the digits read so far stand against a bound's: in the whole part by their number and their
// order, behind the point by their order.
struct Place {
  enum Part : uint8_t { kStart, kMinus, kZero, kWhole, kPoint, kFraction } part = kStart;
  bool negative = false;
  int digits = 0;  // of the part; one more than the bound has: more
  Sign order = kSame;
  auto operator<=>(const Place&) const = default;
};

Sign OrderOf(int difference) { return difference < 0 ? kLess : difference > 0 ? kMore : kSame; }

// Numbers whose size compares with the bound's as `positive` (of numbers without a minus) or
// `negative` says.
CharDfa Sized(const Decimal& bound, int positive, int negative) {
  DigitDfa<Place> dfa;
  dfa.Of({});
  const int whole = static_cast<int>(bound.whole.size());
  const int fraction = static_cast<int>(bound.fraction.size());
  for (size_t i = 0; i < dfa.size(); ++i) {
    const Place at = dfa.key(i);
    const auto from = static_cast<uint32_t>(i);
    const auto order_at = [&](int digit, int index, const std::string& of) {
      if (at.order != kSame) return at.order;
      const int its = index < std::ssize(of) ? of[static_cast<size_t>(index)] - '0' : 0;
      return OrderOf(digit - its);
    };
    // The order of what was read, were the whole part to end here.
    const Sign by_length = at.digits == whole ? at.order : OrderOf(at.digits - whole);
    if (at.part == Place::kStart) dfa.Edge(from, '-', {.part = Place::kMinus, .negative = true});
    if (at.part == Place::kZero || at.part == Place::kWhole) {
      dfa.Edge(from, '.', {.part = Place::kPoint, .negative = at.negative, .order = by_length});
    }
    for (int d = 0; d <= 9; ++d) {
      const char c = static_cast<char>('0' + d);
      Place to = at;
      if (at.part == Place::kStart || at.part == Place::kMinus) {
        to.part = d == 0 ? Place::kZero : Place::kWhole;
        to.digits = 1;
        to.order = order_at(d, 0, bound.whole);
      } else if (at.part == Place::kWhole) {
        to.digits = std::min(at.digits + 1, whole + 1);
        to.order = at.digits < whole ? order_at(d, at.digits, bound.whole) : kMore;
      } else if (at.part == Place::kPoint || at.part == Place::kFraction) {
        to.part = Place::kFraction;
        to.order = order_at(d, at.digits, bound.fraction);
        to.digits = to.order == kSame ? std::min(at.digits + 1, fraction) : 0;
      } else {
        continue;
      }
      dfa.Edge(from, c, to);
    }
    if (at.part == Place::kStart || at.part == Place::kMinus || at.part == Place::kPoint) continue;
    Sign order = at.part == Place::kFraction ? at.order : by_length;
    const int seen = at.part == Place::kFraction ? at.digits : 0;
    if (order == kSame && seen < fraction) order = kLess;
    dfa.Final(i, ((at.negative ? negative : positive) & order) != 0);
  }
  return dfa.Finish();
}

// Remainders of the digits by the divisor without its point.
struct Remainder {
  Place::Part part = Place::kStart;
  int digits = 0;  // behind the point
  int64_t rest = 0;
  auto operator<=>(const Remainder&) const = default;
};

CharDfa Multiples(int64_t divisor, int decimals) {
  DigitDfa<Remainder> dfa;
  dfa.Of({});
  for (size_t i = 0; i < dfa.size(); ++i) {
    const Remainder at = dfa.key(i);
    const auto from = static_cast<uint32_t>(i);
    if (at.part == Place::kStart) dfa.Edge(from, '-', {.part = Place::kMinus});
    const bool whole = at.part == Place::kZero || at.part == Place::kWhole;
    if (whole) dfa.Edge(from, '.', {.part = Place::kPoint, .rest = at.rest});
    for (int d = 0; d <= 9; ++d) {
      Remainder to = at;
      const int64_t next = (at.rest * 10 + d) % divisor;
      if (at.part == Place::kStart || at.part == Place::kMinus) {
        to = {.part = d == 0 ? Place::kZero : Place::kWhole, .rest = next};
      } else if (at.part == Place::kWhole) {
        to.rest = next;
      } else if (at.part == Place::kPoint || at.part == Place::kFraction) {
        to.part = Place::kFraction;
        if (at.digits == decimals) {
          if (d != 0) continue;
        } else {
          to = {.part = Place::kFraction, .digits = at.digits + 1, .rest = next};
        }
      } else {
        continue;
      }
      dfa.Edge(from, static_cast<char>('0' + d), to);
    }
    int64_t rest = at.rest;
    for (int k = at.digits; k < decimals; ++k) rest = rest * 10 % divisor;
    dfa.Final(i, (whole || at.part == Place::kFraction) && rest == 0);
  }
  return dfa.Finish();
}

// -?, digits, a point, digits: at most kMostSpelled in all; without a point any number of them.
CharDfa ShortFractions() {
  std::string pattern = "0|-?[1-9][0-9]*";
  for (int whole = 1; whole < kMostSpelled; ++whole) {
    pattern += fmt::format("|-?{}\\.[0-9]{{1,{}}}",
                           whole == 1 ? "[0-9]" : fmt::format("[1-9][0-9]{{{}}}", whole - 1),
                           kMostSpelled - whole);
  }
  return WholeRegex(pattern);
}

}  // namespace

NumberSet NumberSet::All() { return {AllDecimals(), true}; }
NumberSet NumberSet::None() { return {CharDfa::Nothing(), false}; }

NumberSet NumberSet::Integers() {
  static const CharDfa kDfa = WholeRegex("-?(0|[1-9][0-9]*)(\\.0+)?");
  return {kDfa, false};
}

Result<NumberSet> NumberSet::Compared(Order order, std::string_view number) {
  NIBBLE_TRY(const Decimal bound, ReadDecimal(number));
  constexpr int kAny = kLess | kSame | kMore;
  const bool below = bound.negative && !bound.zero();
  const int same_of_minus = bound.zero() ? kSame : 0;
  switch (order) {
    case Order::kEqual:
      return NumberSet(below ? Sized(bound, 0, kSame) : Sized(bound, kSame, same_of_minus), false);
    case Order::kAtLeast:
      return NumberSet(
          below ? Sized(bound, kAny, kLess | kSame) : Sized(bound, kSame | kMore, same_of_minus),
          false);
    case Order::kAbove:
      return NumberSet(below ? Sized(bound, kAny, kLess) : Sized(bound, kMore, 0), false);
    case Order::kAtMost:
      return NumberSet(below ? Sized(bound, 0, kSame | kMore) : Sized(bound, kLess | kSame, kAny),
                       false);
    case Order::kBelow:
      break;
  }
  const int beyond_zero = bound.zero() ? int{kMore} : kAny;
  return NumberSet(below ? Sized(bound, 0, kMore) : Sized(bound, kLess, beyond_zero), false);
}

Result<NumberSet> NumberSet::MultiplesOf(std::string_view number) {
  NIBBLE_TRY(const Decimal divisor, ReadDecimal(number));
  if (divisor.negative || divisor.zero()) return BadInput("{} is not above 0", number);
  const std::string digits = divisor.whole + divisor.fraction;
  int64_t value = 0;
  for (const char c : digits) {
    value = value * 10 + (c - '0');
    if (value > kMostDivisor) return BadInput("{} has too many digits", number);
  }
  return NumberSet(Multiples(value, static_cast<int>(divisor.fraction.size())), false);
}

Result<NumberSet> NumberSet::Intersect(const NumberSet& other) const {
  if (exponents_) return other;
  if (other.exponents_) return *this;
  NIBBLE_TRY(CharDfa dfa, decimals_.Intersect(other.decimals_));
  return NumberSet(std::move(dfa), false);
}

Result<NumberSet> NumberSet::Unite(const NumberSet& other) const {
  if (exponents_ || other.exponents_) return All();
  NIBBLE_TRY(CharDfa dfa, decimals_.Unite(other.decimals_));
  return NumberSet(std::move(dfa), false);
}

Result<NumberSet> NumberSet::Complement() const {
  NIBBLE_TRY(CharDfa dfa, AllDecimals().Intersect(decimals_.Complement()));
  return NumberSet(std::move(dfa), false);
}

Result<CharDfa> NumberSet::Spellings() const {
  static const CharDfa kPlain = WholeRegex("0|-?[1-9][0-9]*");
  static const CharDfa kShort = ShortFractions();
  NIBBLE_TRY(const CharDfa others, decimals_.Intersect(Integers().decimals_.Complement()));
  return decimals_.Intersect(others.IsEmpty() ? kPlain : kShort);
}

}  // namespace nibble::grammar
