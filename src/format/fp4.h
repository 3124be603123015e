#pragma once

#include <cstdint>

#include "format/format.h"

namespace nibble {

// 4-bit floats (E2M1) with a small float scale per group. The OCP microscaling specification's
// MXFP4 and NVIDIA's NVFP4, in ggml's layout: the low nibbles of a group's bytes hold its first
// half, the high nibbles its second (Hugging Face checkpoints pair neighbours instead).

// E2M1 doubled, so that every value is an integer; bit 3 of the code is the sign.
inline constexpr int8_t kE2M1Doubled[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                            0, -1, -2, -3, -4, -6, -8, -12};

// 2^(e − 127) × E2M1
struct BlockMxfp4 {
  uint8_t e;  // E8M0
  uint8_t qs[16];
};
static_assert(sizeof(BlockMxfp4) == 17);

// Four groups of 16: UE4M3(d[s]) × E2M1; group s has the bytes qs[8s …].
struct BlockNvfp4 {
  uint8_t d[4];
  uint8_t qs[32];
};
static_assert(sizeof(BlockNvfp4) == 36);

void DecodeMxfp4(const std::byte* src, float* dst, size_t count);
void EncodeMxfp4(const float* src, std::byte* dst, size_t count);
void DecodeNvfp4(const std::byte* src, float* dst, size_t count);
void EncodeNvfp4(const float* src, std::byte* dst, size_t count);

inline constexpr FormatTraits kMxfp4Traits = {Format::kMxfp4, "mxfp4",     39,         32, 17, 32,
                                              0.13,           DecodeMxfp4, EncodeMxfp4};
inline constexpr FormatTraits kNvfp4Traits = {Format::kNvfp4, "nvfp4",     40,         64, 36, 32,
                                              0.11,           DecodeNvfp4, EncodeNvfp4};

}  // namespace nibble
