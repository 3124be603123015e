#pragma once

#include "format/format.h"

namespace nibble {

// Formats without blocks: one element, no shared scale. Encoders round to nearest even; F16
// overflows to infinity, the FP8 formats saturate.
void DecodeF32(const std::byte* src, float* dst, size_t count);
void EncodeF32(const float* src, std::byte* dst, size_t count);
void DecodeF16(const std::byte* src, float* dst, size_t count);
void EncodeF16(const float* src, std::byte* dst, size_t count);
void DecodeBF16(const std::byte* src, float* dst, size_t count);
void EncodeBF16(const float* src, std::byte* dst, size_t count);
void DecodeF8E4M3(const std::byte* src, float* dst, size_t count);
void EncodeF8E4M3(const float* src, std::byte* dst, size_t count);
void DecodeF8E5M2(const std::byte* src, float* dst, size_t count);
void EncodeF8E5M2(const float* src, std::byte* dst, size_t count);

// Relative errors: a rounding error uniform in half a step of 2^-m, over the place of x in its
// binade, is about 2^-m × 0.21 of x.
inline constexpr FormatTraits kF32Traits = {Format::kF32, "f32",     0,        1, 4, 0,
                                            0.0,          DecodeF32, EncodeF32};
inline constexpr FormatTraits kF16Traits = {Format::kF16, "f16",     1,        1, 2, 0,
                                            2.2e-4,       DecodeF16, EncodeF16};
inline constexpr FormatTraits kBF16Traits = {Format::kBF16, "bf16",     30,        1, 2, 0,
                                             1.75e-3,       DecodeBF16, EncodeBF16};
inline constexpr FormatTraits kF8E4M3Traits = {Format::kF8E4M3, "f8_e4m3",    {},          1, 1, 0,
                                               2.8e-2,          DecodeF8E4M3, EncodeF8E4M3};
inline constexpr FormatTraits kF8E5M2Traits = {Format::kF8E5M2, "f8_e5m2",    {},          1, 1, 0,
                                               5.6e-2,          DecodeF8E5M2, EncodeF8E5M2};

}  // namespace nibble
