#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace nibble {

template <std::integral T>
constexpr T CeilDiv(T a, T b) {
  return (a + b - 1) / b;
}

template <std::integral T>
constexpr T RoundUp(T a, T multiple) {
  return CeilDiv(a, multiple) * multiple;
}

// Products and sums of numbers that came from a file: nothing when they overflow.
template <std::unsigned_integral T>
constexpr std::optional<T> CheckedMul(T a, T b) {
  T out;
  if (__builtin_mul_overflow(a, b, &out)) return std::nullopt;
  return out;
}

template <std::unsigned_integral T>
constexpr std::optional<T> CheckedAdd(T a, T b) {
  T out;
  if (__builtin_add_overflow(a, b, &out)) return std::nullopt;
  return out;
}

}  // namespace nibble
