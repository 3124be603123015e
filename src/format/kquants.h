#pragma once

#include <cstdint>

#include "format/format.h"

namespace nibble {

// ggml's k-quants: super-blocks of 256 with quantised scales of groups of 16 or 32 elements.
// Element e = 0 … 255; the bit layouts are in the Codes and Scale functions, their one home.
inline constexpr int kSuperBlock = 256;

// 16 groups of 16: d × (scale & 15) × code − dmin × (scale >> 4), codes 0 … 3.
struct BlockQ2K {
  uint8_t scales[16];
  uint8_t qs[64];
  uint16_t d;
  uint16_t dmin;
};
static_assert(sizeof(BlockQ2K) == 84);

// 16 groups of 16: d × scale × (code − 4), scales −32 … 31, codes 0 … 7.
struct BlockQ3K {
  uint8_t hmask[32];
  uint8_t qs[64];
  uint8_t scales[12];
  uint16_t d;
};
static_assert(sizeof(BlockQ3K) == 110);

// 8 groups of 32: d × scale × code − dmin × min, scales and mins 0 … 63, codes 0 … 15.
struct BlockQ4K {
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];
  uint8_t qs[128];
};
static_assert(sizeof(BlockQ4K) == 144);

// As Q4_K with codes 0 … 31.
struct BlockQ5K {
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];
  uint8_t qh[32];
  uint8_t qs[128];
};
static_assert(sizeof(BlockQ5K) == 176);

// 16 groups of 16: d × scale × (code − 32), scales −128 … 127, codes 0 … 63.
struct BlockQ6K {
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  uint16_t d;
};
static_assert(sizeof(BlockQ6K) == 210);

// Scale and min of group g = 0 … 7 of Q4_K and Q5_K.
struct ScaleMin {
  uint8_t scale;
  uint8_t min;
};
constexpr ScaleMin ScaleMinOf(const uint8_t scales[12], int g) {
  if (g < 4) {
    return {static_cast<uint8_t>(scales[g] & 63), static_cast<uint8_t>(scales[g + 4] & 63)};
  }
  return {static_cast<uint8_t>((scales[g + 4] & 15) | ((scales[g - 4] >> 6) << 4)),
          static_cast<uint8_t>((scales[g + 4] >> 4) | ((scales[g] >> 6) << 4))};
}

// Scale of group g = 0 … 15 of Q3_K, −32 … 31.
constexpr int Q3KScale(const uint8_t scales[12], int g) {
  const int low = g < 8 ? scales[g] & 15 : scales[g - 8] >> 4;
  const int high = (scales[8 + g % 4] >> (2 * (g / 4))) & 3;
  return (low | (high << 4)) - 32;
}

// The 256 codes of a block in element order, as unsigned numbers.
void CodesOf(const BlockQ2K& block, uint8_t codes[kSuperBlock]);
void CodesOf(const BlockQ3K& block, uint8_t codes[kSuperBlock]);
void CodesOf(const BlockQ4K& block, uint8_t codes[kSuperBlock]);
void CodesOf(const BlockQ5K& block, uint8_t codes[kSuperBlock]);
void CodesOf(const BlockQ6K& block, uint8_t codes[kSuperBlock]);

// The other way: sets a block's codes.
void PutCodes(const uint8_t codes[kSuperBlock], BlockQ2K& block);
void PutCodes(const uint8_t codes[kSuperBlock], BlockQ3K& block);
void PutCodes(const uint8_t codes[kSuperBlock], BlockQ4K& block);
void PutCodes(const uint8_t codes[kSuperBlock], BlockQ5K& block);
void PutCodes(const uint8_t codes[kSuperBlock], BlockQ6K& block);

// Adds group g's scale and min to the 12 bytes of Q4_K and Q5_K, which were zeros.
void PutScaleMin(int g, ScaleMin group, uint8_t scales[12]);
// Adds group g's scale, −32 … 31, to those of Q3_K, which were zeros.
void PutQ3KScale(int g, int scale, uint8_t scales[12]);

void DecodeQ2K(const std::byte* src, float* dst, size_t count);
void EncodeQ2K(const float* src, std::byte* dst, size_t count);
void EncodeWeightedQ2K(const float* src, const float* importance, std::byte* dst, size_t count);
void DecodeQ3K(const std::byte* src, float* dst, size_t count);
void EncodeQ3K(const float* src, std::byte* dst, size_t count);
void EncodeWeightedQ3K(const float* src, const float* importance, std::byte* dst, size_t count);
void DecodeQ4K(const std::byte* src, float* dst, size_t count);
void EncodeQ4K(const float* src, std::byte* dst, size_t count);
void EncodeWeightedQ4K(const float* src, const float* importance, std::byte* dst, size_t count);
void DecodeQ5K(const std::byte* src, float* dst, size_t count);
void EncodeQ5K(const float* src, std::byte* dst, size_t count);
void EncodeWeightedQ5K(const float* src, const float* importance, std::byte* dst, size_t count);
void DecodeQ6K(const std::byte* src, float* dst, size_t count);
void EncodeQ6K(const float* src, std::byte* dst, size_t count);
void EncodeWeightedQ6K(const float* src, const float* importance, std::byte* dst, size_t count);

inline constexpr FormatTraits kQ2KTraits = {
    Format::kQ2K, "q2_k", 10, kSuperBlock, 84, 256, 0.34, DecodeQ2K, EncodeQ2K, EncodeWeightedQ2K};
inline constexpr FormatTraits kQ3KTraits = {
    Format::kQ3K, "q3_k", 11, kSuperBlock, 110, 256, 0.17, DecodeQ3K, EncodeQ3K, EncodeWeightedQ3K};
inline constexpr FormatTraits kQ4KTraits = {
    Format::kQ4K, "q4_k", 12, kSuperBlock, 144, 256, 0.08, DecodeQ4K, EncodeQ4K, EncodeWeightedQ4K};
inline constexpr FormatTraits kQ5KTraits = {
    Format::kQ5K, "q5_k", 13, kSuperBlock, 176, 256, 0.04, DecodeQ5K, EncodeQ5K, EncodeWeightedQ5K};
inline constexpr FormatTraits kQ6KTraits = {
    Format::kQ6K, "q6_k", 14, kSuperBlock, 210, 256, 0.02, DecodeQ6K, EncodeQ6K, EncodeWeightedQ6K};

}  // namespace nibble
