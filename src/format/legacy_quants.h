#pragma once

#include <cstdint>

#include "format/format.h"

namespace nibble {

// ggml's first block formats: 32 elements share an f16 scale d (and, for _1, an f16 minimum m).
// Byte j of qs holds elements j (low nibble) and j + 16 (high nibble).
// d × (nibble − 8)
struct BlockQ4_0 {
  uint16_t d;
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ4_0) == 18);

// d × nibble + m
struct BlockQ4_1 {
  uint16_t d;
  uint16_t m;
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ4_1) == 20);

// d × (code − 16); bit e of qh is bit 4 of element e's code.
struct BlockQ5_0 {
  uint16_t d;
  uint8_t qh[4];
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ5_0) == 22);

// d × code + m
struct BlockQ5_1 {
  uint16_t d;
  uint16_t m;
  uint8_t qh[4];
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ5_1) == 24);

// d × qs
struct BlockQ8_0 {
  uint16_t d;
  int8_t qs[32];
};
static_assert(sizeof(BlockQ8_0) == 34);

// The 32 codes of a block in element order: 0…15, with qh 0…31.
void CodesOfNibbles(const uint8_t qs[16], uint8_t codes[32]);
void CodesOfNibblesAndHigh(const uint8_t qs[16], const uint8_t qh[4], uint8_t codes[32]);

// The other way: qs of codes 0…15, or the low nibbles and the high bits of 0…31.
void PackNibbles(const uint8_t codes[32], uint8_t qs[16]);
void PackHighBits(const uint8_t codes[32], uint8_t qh[4]);

void DecodeQ4_0(const std::byte* src, float* dst, size_t count);
void EncodeQ4_0(const float* src, std::byte* dst, size_t count);
void EncodeWeightedQ4_0(const float* src, const float* importance, std::byte* dst, size_t count);
void DecodeQ4_1(const std::byte* src, float* dst, size_t count);
void EncodeQ4_1(const float* src, std::byte* dst, size_t count);
void EncodeWeightedQ4_1(const float* src, const float* importance, std::byte* dst, size_t count);
void DecodeQ5_0(const std::byte* src, float* dst, size_t count);
void EncodeQ5_0(const float* src, std::byte* dst, size_t count);
void EncodeWeightedQ5_0(const float* src, const float* importance, std::byte* dst, size_t count);
void DecodeQ5_1(const std::byte* src, float* dst, size_t count);
void EncodeQ5_1(const float* src, std::byte* dst, size_t count);
void EncodeWeightedQ5_1(const float* src, const float* importance, std::byte* dst, size_t count);
void DecodeQ8_0(const std::byte* src, float* dst, size_t count);
void EncodeQ8_0(const float* src, std::byte* dst, size_t count);

inline constexpr FormatTraits kQ4_0Traits = {
    Format::kQ4_0, "q4_0", 2, 32, 18, 32, 0.092, DecodeQ4_0, EncodeQ4_0, EncodeWeightedQ4_0};
inline constexpr FormatTraits kQ4_1Traits = {
    Format::kQ4_1, "q4_1", 3, 32, 20, 32, 0.083, DecodeQ4_1, EncodeQ4_1, EncodeWeightedQ4_1};
inline constexpr FormatTraits kQ5_0Traits = {
    Format::kQ5_0, "q5_0", 6, 32, 22, 32, 0.046, DecodeQ5_0, EncodeQ5_0, EncodeWeightedQ5_0};
inline constexpr FormatTraits kQ5_1Traits = {
    Format::kQ5_1, "q5_1", 7, 32, 24, 32, 0.041, DecodeQ5_1, EncodeQ5_1, EncodeWeightedQ5_1};
inline constexpr FormatTraits kQ8_0Traits = {Format::kQ8_0, "q8_0",     8,         32, 34, 32,
                                             0.0058,        DecodeQ8_0, EncodeQ8_0};

}  // namespace nibble
