#pragma once

#include <cstdint>

#include "base/ids.h"

namespace nibble {

// Random numbers by key, never from a stream: the number for one candidate depends on (seed,
// choice, position, token id) alone, so an answer is the same in any batch, after preemption and on
// any machine.
//
// Mix is SplitMix64's output function (Steele, Lea, Flood 2014); Bits(id) is output number id + 1
// of SplitMix64 started at a state hashed from the other three keys.
class DrawKey {
 public:
  DrawKey(uint64_t seed, int choice, int position)
      : state_(Mix(Mix(Mix(seed + kGolden) + static_cast<uint64_t>(choice)) +
                   static_cast<uint64_t>(position))) {}

  uint64_t Bits(TokenId id) const {
    return Mix(state_ + (static_cast<uint64_t>(id.value()) + 1) * kGolden);
  }

  // In (0, 1): multiples of 2^-53 that are odd, so that neither end is reached.
  static double Uniform(uint64_t bits) { return (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52; }

 private:
  static constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;
  static constexpr uint64_t Mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return x ^ (x >> 31);
  }
  uint64_t state_;
};

}  // namespace nibble
