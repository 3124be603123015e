#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/matmul_kernels.h"

// One source for all instruction sets: plain loops that the compiler vectorises. Only exact integer
// operations and single float operations per element, so that all give the same bits.
namespace nibble::NIBBLE_ISA_NS {
namespace {

// Below this the reciprocal would overflow; such a group counts as all zero.
constexpr float kSmallestAbsMax = 0x1p-120f;
// Adding it rounds to an integer, halves to even, and leaves that integer in the low bits.
constexpr float kRoundMagic = 0x1.8p23f;
constexpr int32_t kRoundMagicBits = 0x4b400000;
constexpr int32_t kInfinityBits = 0x7f800000;

// Codes of n floats (a multiple of 16, at most 256), their scale returned. A NaN or infinity among
// them makes the scale NaN, and so every product with this group.
inline float QuantiseGroup(const float* x, int n, int32_t* codes) {
  int32_t bits[256];
  std::memcpy(bits, x, sizeof(float) * static_cast<size_t>(n));
  int32_t max_bits = 0;
  for (int i = 0; i < n; ++i) {
    const int32_t magnitude = bits[i] & 0x7fffffff;
    max_bits = magnitude > max_bits ? magnitude : max_bits;
  }
  if (max_bits >= kInfinityBits) {
    for (int i = 0; i < n; ++i) codes[i] = 0;
    return __builtin_nanf("");
  }
  float absmax;
  std::memcpy(&absmax, &max_bits, sizeof absmax);
  if (!(absmax >= kSmallestAbsMax)) absmax = 0;
  const float inverse = absmax > 0 ? 127.0f / absmax : 0.0f;
  float rounded[256];
  for (int i = 0; i < n; ++i) rounded[i] = x[i] * inverse + kRoundMagic;
  std::memcpy(codes, rounded, sizeof(float) * static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) {
    const int32_t code = codes[i] - kRoundMagicBits;
    const int32_t capped = code > 127 ? 127 : code;
    codes[i] = capped < -127 ? -127 : capped;
  }
  return absmax / 127.0f;
}

inline int32_t PackPair(int32_t low, int32_t high) {
  return static_cast<int32_t>((static_cast<uint32_t>(low) & 0xffffu) |
                              (static_cast<uint32_t>(high) << 16));
}

void QuantiseRow(const float* x, int cols, int group, const QuantisedRowOut& out) {
  const int width = out.width;
  for (int begin = 0, g = 0; begin < cols; begin += group, ++g) {
    alignas(64) float padded[256];
    const float* src = x + begin;
    if (cols - begin < group) {
      for (int i = 0; i < group; ++i) padded[i] = begin + i < cols ? src[i] : 0.0f;
      src = padded;
    }
    alignas(64) int32_t codes[256];
    const float scale = QuantiseGroup(src, group, codes);
    out.scale[g * width] = scale;
    for (int i = 0; i < group; i += 4) {
      const uint32_t word = (static_cast<uint32_t>(codes[i]) & 0xffu) |
                            (static_cast<uint32_t>(codes[i + 1]) & 0xffu) << 8 |
                            (static_cast<uint32_t>(codes[i + 2]) & 0xffu) << 16 |
                            static_cast<uint32_t>(codes[i + 3]) << 24;
      std::memcpy(out.codes + static_cast<ptrdiff_t>(begin + i) * width, &word, sizeof word);
    }
    int32_t sums[16];
    for (int j = 0; j < group / 16; ++j) {
      int32_t sum = 0;
      for (int i = 0; i < 16; ++i) sum += codes[j * 16 + i];
      sums[j] = sum;
      out.neg_sum16[(begin / 16 + j) * width] = -sum;
    }
    for (int j = 0; j < group / 32; ++j) {
      const int32_t sum = sums[2 * j] + sums[2 * j + 1];
      out.neg_sum32[(begin / 32 + j) * width] = -sum;
      if (group == 32) {
        out.scaled_sum[(begin / 32 + j) * width] = scale * static_cast<float>(sum);
      } else {
        out.sum_pair16[(begin / 32 + j) * width] = PackPair(sums[2 * j], sums[2 * j + 1]);
      }
    }
    if (group == 32) continue;
    for (int j = 0; j < group / 64; ++j) {
      out.sum_pair32[(begin / 64 + j) * width] =
          PackPair(sums[4 * j] + sums[4 * j + 1], sums[4 * j + 2] + sums[4 * j + 3]);
    }
  }
}

}  // namespace
}  // namespace nibble::NIBBLE_ISA_NS
