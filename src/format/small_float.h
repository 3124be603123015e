#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace nibble {

// Conversions between float and the small float formats. Round to nearest, ties to even, by integer
// arithmetic: the same bits on every machine. A NaN stays a (quiet) NaN.

// IEEE 754 binary16.
constexpr float F16ToF32(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  if (magnitude < 0x0400u) {  // zero and subnormals: multiples of 2^-24
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
  }
  const uint32_t rebias = magnitude >= 0x7c00u ? 224u << 23 : 112u << 23;
  return std::bit_cast<float>(((magnitude << 13) + rebias) | sign);
}

// Beyond 65504 + half a step: infinity.
constexpr uint16_t F32ToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t half = 0;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | ((magnitude >> 13) & 0x01ffu);
  } else if (magnitude >= 0x477ff000u) {  // 65520, halfway to the next step
    half = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {  // 2^-14, the smallest normal
    half = (magnitude - (112u << 23) + 0x0fffu + ((magnitude >> 13) & 1u)) >> 13;
  } else {  // adding 0.5 leaves a multiple of 2^-24 in the low bits, rounded by the addition
    half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  }
  return static_cast<uint16_t>(half | sign);
}

// As F32ToF16, but what is too large becomes ±65504.
constexpr uint16_t F32ToF16Saturating(float value) {
  const uint16_t half = F32ToF16(value);
  return (half & 0x7fffu) == 0x7c00u ? static_cast<uint16_t>((half & 0x8000u) | 0x7bffu) : half;
}

// The upper half of a float.
constexpr float BF16ToF32(uint16_t half) {
  return std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
}
constexpr uint16_t F32ToBF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x0040u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// FP8 E4M3 without infinities (OCP; torch.float8_e4m3fn): bias 7, largest 448, NaN 0x7f.
constexpr float F8E4M3ToF32(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80u) << 24;
  const uint32_t magnitude = code & 0x7fu;
  if (magnitude == 0x7fu) return std::bit_cast<float>(0x7fc00000u | sign);
  if (magnitude < 8) {
    const float value = static_cast<float>(magnitude) * 0x1p-9f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
  }
  return std::bit_cast<float>(((magnitude << 20) + (120u << 23)) | sign);
}
// What is too large, infinities included, becomes ±448.
constexpr uint8_t F32ToF8E4M3Saturating(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 24) & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t code = 0;
  if (magnitude > 0x7f800000u) {
    code = 0x7fu;
  } else if (magnitude >= 0x43e00000u) {  // 448
    code = 0x7eu;
  } else if (magnitude >= 0x3c800000u) {  // 2^-6, the smallest normal
    code = (magnitude - (120u << 23) + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20;
  } else {  // 2^14 + x: multiples of 2^-9
    code = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0x1p14f) - 0x46800000u;
  }
  return static_cast<uint8_t>(code | sign);
}

// FP8 E5M2: the upper half of a binary16; largest 57344.
constexpr float F8E5M2ToF32(uint8_t code) {
  return F16ToF32(static_cast<uint16_t>(static_cast<uint32_t>(code) << 8));
}
// What is too large, infinities included, becomes ±57344.
constexpr uint8_t F32ToF8E5M2Saturating(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 24) & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t code = 0;
  if (magnitude > 0x7f800000u) {
    code = 0x7fu;
  } else if (magnitude >= 0x47600000u) {  // 57344
    code = 0x7bu;
  } else if (magnitude >= 0x38800000u) {  // 2^-14
    code = (magnitude - (112u << 23) + 0xfffffu + ((magnitude >> 21) & 1u)) >> 21;
  } else {  // 2^7 + x: multiples of 2^-16
    code = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0x1p7f) - 0x43000000u;
  }
  return static_cast<uint8_t>(code | sign);
}

// E8M0 (OCP microscaling): 2^(code − 127), 255 is NaN.
constexpr float E8M0ToF32(uint8_t code) {
  if (code == 0) return 0x1p-127f;
  if (code == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(static_cast<uint32_t>(code) << 23);
}
// Half of it, for codes stored doubled; 255 is 2^127, as ggml reads it.
constexpr float E8M0ToF32Half(uint8_t code) {
  return std::bit_cast<float>(code < 2 ? 0x00200000u << code
                                       : (static_cast<uint32_t>(code) - 1u) << 23);
}

// Unsigned E4M3, the scales of NVFP4: bias 7, no sign. The codes 0x7f and above 0x7f are not
// written; 0x7f reads as 0 (ggml), the sign bit is ignored except that 0xff reads as 480.
constexpr float UE4M3ToF32(uint8_t code) {
  if (code == 0 || code == 0x7fu) return 0.0f;
  const uint32_t magnitude = code & 0x7fu;
  if (magnitude < 8) return static_cast<float>(magnitude) * 0x1p-9f;
  return std::bit_cast<float>((magnitude << 20) + (120u << 23));
}
// ggml's rounding, not the nearest code everywhere: ties go up, from 256 on everything becomes 448,
// and the largest subnormal does not carry into the normals.
constexpr uint8_t F32ToUE4M3(float value) {
  if (!(value > 0.0f)) return 0;
  if (value >= 256.0f) return 0x7eu;
  if (value < 0x1p-6f) {
    // NOLINTNEXTLINE(bugprone-incorrect-roundings): ggml's very expression
    const int code = static_cast<int>(value * 512.0f + 0.5f);
    return static_cast<uint8_t>(code > 7 ? 7 : code);
  }
  const uint32_t code = (std::bit_cast<uint32_t>(value) - (120u << 23) + 0x80000u) >> 20;
  return static_cast<uint8_t>(code >= 0x78u ? 0x7eu : code);
}

}  // namespace nibble
