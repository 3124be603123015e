#pragma once

#include <cstdint>

#include "format/format.h"

namespace nibble {

// Integer codes with a scale and a zero per group of a row, as GPTQ, AWQ and compressed-tensors
// store them, each in an order of its own (container/hf_linear.h): d × (code − z). Symmetric codes
// have z = 8 or 128. 4 bits: of each 32 elements byte j of 16 holds elements j (low nibble) and
// j + 16, as in Q4_0. Bytes only, so that no block is padded.
template <int kGroup>
struct BlockW4 {
  uint8_t d[2];  // f16
  uint8_t z;     // 0 … 15
  uint8_t qs[kGroup / 2];
};
static_assert(sizeof(BlockW4<32>) == 19);
static_assert(sizeof(BlockW4<64>) == 35);
static_assert(sizeof(BlockW4<128>) == 67);

template <int kGroup>
struct BlockW8 {
  uint8_t d[2];
  uint8_t z;
  uint8_t qs[kGroup];
};
static_assert(sizeof(BlockW8<32>) == 35);
static_assert(sizeof(BlockW8<64>) == 67);
static_assert(sizeof(BlockW8<128>) == 131);

// The format of a group of 32, 64 or 128 codes of 4 or 8 bits.
Format GroupedFormat(int bits, int group);
// Whether the format is one of those.
bool IsGrouped(Format format);
// One block from its parts; codes and zero within the format's bits. d: the bits of an f16.
void PutGroupedBlock(Format format, uint16_t d, uint8_t zero, const uint8_t* codes,
                     std::byte* block);

void DecodeW4G32(const std::byte* src, float* dst, size_t count);
void DecodeW4G64(const std::byte* src, float* dst, size_t count);
void DecodeW4G128(const std::byte* src, float* dst, size_t count);
void DecodeW8G32(const std::byte* src, float* dst, size_t count);
void DecodeW8G64(const std::byte* src, float* dst, size_t count);
void DecodeW8G128(const std::byte* src, float* dst, size_t count);

// Round to nearest, asymmetric: d = (max − min) / (2^bits − 1) with min ≤ 0 ≤ max, rounded to f16;
// z = −min / d and the codes w / d + z rounded to even and clamped. An all-zero group: d = 0.
void EncodeW4G32(const float* src, std::byte* dst, size_t count);
void EncodeW4G64(const float* src, std::byte* dst, size_t count);
void EncodeW4G128(const float* src, std::byte* dst, size_t count);
void EncodeW8G32(const float* src, std::byte* dst, size_t count);
void EncodeW8G64(const float* src, std::byte* dst, size_t count);
void EncodeW8G128(const float* src, std::byte* dst, size_t count);

// Relative errors: a step of (max − min) / 15 or 255 over √12, with the expected range of 32, 64 or
// 128 normal numbers (4.14, 4.74, 5.30), and a little for the rounded zero.
inline constexpr FormatTraits kW4G32Traits = {Format::kW4G32, "w4g32",     {},         32, 19, 32,
                                              0.083,          DecodeW4G32, EncodeW4G32};
inline constexpr FormatTraits kW4G64Traits = {Format::kW4G64, "w4g64",     {},         64, 35, 32,
                                              0.095,          DecodeW4G64, EncodeW4G64};
inline constexpr FormatTraits kW4G128Traits = {Format::kW4G128, "w4g128",    {}, 128, 67, 32, 0.106,
                                               DecodeW4G128,    EncodeW4G128};
inline constexpr FormatTraits kW8G32Traits = {Format::kW8G32, "w8g32",     {},         32, 35, 32,
                                              0.005,          DecodeW8G32, EncodeW8G32};
inline constexpr FormatTraits kW8G64Traits = {Format::kW8G64, "w8g64",     {},         64, 67, 32,
                                              0.0057,         DecodeW8G64, EncodeW8G64};
inline constexpr FormatTraits kW8G128Traits = {
    Format::kW8G128, "w8g128", {}, 128, 131, 32, 0.0063, DecodeW8G128, EncodeW8G128};

}  // namespace nibble
