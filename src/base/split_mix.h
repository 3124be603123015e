#pragma once

#include <cstdint>

namespace nibble {

// SplitMix64 (Steele, Lea, Flood 2014): its output function, and what its state grows by.
constexpr uint64_t SplitMix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}
inline constexpr uint64_t kSplitMixStep = 0x9E3779B97F4A7C15;

// Output number `index` of the generator that starts at `state`.
constexpr uint64_t SplitMixAt(uint64_t state, uint64_t index) {
  return SplitMix(state + (index + 1) * kSplitMixStep);
}

// In (0, 1): odd multiples of 2^-53, so that neither end is reached.
constexpr double UniformOf(uint64_t bits) {
  return (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
}

}  // namespace nibble
