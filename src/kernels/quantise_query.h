#pragma once

#include "kernels/attention_kernels.h"
#include "kernels/math_constants.h"

namespace nibble {

// A row block's query q[head_dim][kRowBlock] as bytes (IntQuery): q ≈ code · scale with |code| <=
// 127, four channels' codes a word; channels beyond head_dim are 0. Static, and without a call: it
// is compiled for every instruction set, whose vectors the compiler fills with the rows.
__attribute__((always_inline)) static inline void QuantiseQueryRows(const float* q, int head_dim,
                                                                    const IntQueryBuffer& to) {
  uint32_t most[kRowBlock] = {};
  for (int d = 0; d < head_dim; ++d) {
    for (int r = 0; r < kRowBlock; ++r) {
      const uint32_t bits = __builtin_bit_cast(uint32_t, q[d * kRowBlock + r]) & 0x7fffffffU;
      most[r] = most[r] > bits ? most[r] : bits;
    }
  }
  float factor[kRowBlock];
  int32_t neg_sum[kRowBlock] = {};
  for (int r = 0; r < kRowBlock; ++r) {
    const float largest = __builtin_bit_cast(float, most[r]);
    const bool finite = most[r] < 0x7f800000U;
    factor[r] = finite && largest > 0x1p-120F ? 127.0F / largest : 0.0F;
    to.scale[r] = finite ? largest / 127.0F : __builtin_nanf("");
  }
  for (int begin = 0; begin < (head_dim + 15) / 16 * 16; begin += 4) {
    uint32_t words[kRowBlock] = {};
    for (int d = begin; d < begin + 4 && d < head_dim; ++d) {
      for (int r = 0; r < kRowBlock; ++r) {
        const float x = factor[r] == 0 ? 0.0F : q[d * kRowBlock + r] * factor[r];
        // The low bits of x + kRound are those of the rounded x.
        const uint32_t code = __builtin_bit_cast(uint32_t, x + math_constants::kRound) << 24;
        words[r] |= code >> (24 - 8 * (d - begin));
        neg_sum[r] -= static_cast<int32_t>(code) >> 24;
      }
    }
    for (int r = 0; r < kRowBlock; ++r) {
      to.q[begin / 4 * kRowBlock + r] = static_cast<int32_t>(words[r]);
    }
  }
  for (int r = 0; r < kRowBlock; ++r) to.neg_sum[r] = neg_sum[r];
}

}  // namespace nibble
