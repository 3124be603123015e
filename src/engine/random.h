#pragma once

#include <cstdint>

#include "base/ids.h"
#include "base/split_mix.h"

namespace nibble {

// Random numbers by key, never from a stream: the number for one candidate depends on (seed,
// choice, position, token id) alone, so an answer is the same in any batch, after preemption and on
// any machine.
//
// Bits(id) is an output of SplitMix64 started at a state hashed from the other three keys.
class DrawKey {
 public:
  DrawKey(uint64_t seed, int choice, int position)
      : state_(SplitMix(SplitMix(SplitMix(seed + kSplitMixStep) + static_cast<uint64_t>(choice)) +
                        static_cast<uint64_t>(position))) {}

  // id -1 is no token: the number of the position itself, for samplers that toss a coin.
  uint64_t Bits(TokenId id) const { return SplitMixAt(state_, static_cast<uint64_t>(id.value())); }

  static double Uniform(uint64_t bits) { return UniformOf(bits); }

 private:
  uint64_t state_;
};

}  // namespace nibble
