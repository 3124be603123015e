#pragma once

#include <cstdint>

#include "format/format.h"

namespace nibble {

// 4-bit codes into a fixed table of 16 uneven steps (ggml's IQ4). No entry is 0: zero is stored
// exactly only where d is 0.
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

// d × table[nibble]; byte j of qs holds elements j and j + 16.
struct BlockIq4Nl {
  uint16_t d;
  uint8_t qs[16];
};
static_assert(sizeof(BlockIq4Nl) == 18);

// Eight groups of 32 with 6-bit scales: d × (scale − 32) × table[nibble]. Low four bits of group
// g's scale in nibble g of scales_l, high two in bits 2g of scales_h.
struct BlockIq4Xs {
  uint16_t d;
  uint16_t scales_h;
  uint8_t scales_l[4];
  uint8_t qs[128];
};
static_assert(sizeof(BlockIq4Xs) == 136);

// Scale of group g, −32 … 31.
constexpr int Iq4XsScale(const BlockIq4Xs& block, int g) {
  const int low = (block.scales_l[g / 2] >> (4 * (g % 2))) & 15;
  const int high = (block.scales_h >> (2 * g)) & 3;
  return (low | (high << 4)) - 32;
}

// The scale d of one group that maximises (Σ w·q·x)² / Σ w·q², q the table's value nearest to
// x / d: for fixed codes the least squares optimum of Σ w·(x − d·q)². Tries the largest element on
// the steps −127 ± 7 and takes the best, as ggml's quantize_row_iq4_nl_impl. x, weights: [32].
float FitIq4Scale(const float* x, const float* weights);

// Adds group g's scale, −32 … 31, to a block whose scales were zeros.
void PutIq4XsScale(int g, int scale, BlockIq4Xs& block);

void DecodeIq4Nl(const std::byte* src, float* dst, size_t count);
void EncodeIq4Nl(const float* src, std::byte* dst, size_t count);
void EncodeWeightedIq4Nl(const float* src, const float* importance, std::byte* dst, size_t count);
void DecodeIq4Xs(const std::byte* src, float* dst, size_t count);
void EncodeIq4Xs(const float* src, std::byte* dst, size_t count);
void EncodeWeightedIq4Xs(const float* src, const float* importance, std::byte* dst, size_t count);

inline constexpr FormatTraits kIq4NlTraits = {
    Format::kIq4Nl, "iq4_nl", 20, 32, 18, 32, 0.081, DecodeIq4Nl, EncodeIq4Nl, EncodeWeightedIq4Nl};
inline constexpr FormatTraits kIq4XsTraits = {
    Format::kIq4Xs, "iq4_xs",           23, 256, 136, 256, 0.083, DecodeIq4Xs,
    EncodeIq4Xs,    EncodeWeightedIq4Xs};

}  // namespace nibble
