#pragma once

#include <compare>

namespace nibble {

// A number with its unit, so that bytes, seconds and tokens cannot be mixed up.
template <class Unit>
struct Quantity {
  double value = 0;

  constexpr Quantity() = default;
  constexpr explicit Quantity(double v) : value(v) {}
  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity operator+(Quantity o) const { return Quantity(value + o.value); }
  constexpr Quantity operator-(Quantity o) const { return Quantity(value - o.value); }
  constexpr Quantity operator*(double factor) const { return Quantity(value * factor); }
  constexpr Quantity operator/(double divisor) const { return Quantity(value / divisor); }
  constexpr double operator/(Quantity o) const { return value / o.value; }
  constexpr Quantity& operator+=(Quantity o) { return value += o.value, *this; }
};

using Bytes = Quantity<struct BytesUnit>;
using Flops = Quantity<struct FlopsUnit>;  // multiplications and additions
using Seconds = Quantity<struct SecondsUnit>;
using Tokens = Quantity<struct TokensUnit>;
template <class Unit>
struct PerSecond {};
template <class Unit>
using Rate = Quantity<PerSecond<Unit>>;
using BytesPerSecond = Rate<BytesUnit>;
using FlopsPerSecond = Rate<FlopsUnit>;
using TokensPerSecond = Rate<TokensUnit>;

template <class Unit>
constexpr Seconds operator/(Quantity<Unit> amount, Rate<Unit> rate) {
  return Seconds(amount.value / rate.value);
}
template <class Unit>
constexpr Rate<Unit> operator/(Quantity<Unit> amount, Seconds time) {
  return Rate<Unit>(amount.value / time.value);
}

}  // namespace nibble
