#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/matmul_kernels.h"

// The quantisation of activation rows (definition in kernels/activations.h), shared by the scalar
// twin and the vector kernels. They differ in two functions only, whose integer operations are
// exact and whose float operations are one per element, so that all give the same bits.
namespace nibble::NIBBLE_ISA_NS {
namespace {

// Below this the reciprocal would overflow; such a group counts as all zero.
constexpr float kSmallestAbsMax = 0x1p-120f;
// Adding it rounds to an integer, halves to even, and leaves that integer in the low bits.
constexpr float kRoundMagic = 0x1.8p23f;
constexpr int32_t kRoundMagicBits = 0x4b400000;
constexpr int32_t kInfinityBits = 0x7f800000;

// From the largest magnitude of a group, as bits.
struct GroupScale {
  float scale;    // of the codes; NaN if a NaN or infinity is among the values, and all codes 0
  float inverse;  // code = round(x · inverse): at most 127 · (1 + 2^-23) before rounding, so ±127
};
inline GroupScale ScaleOfGroup(int32_t max_bits) {
  if (max_bits >= kInfinityBits) return {__builtin_nanf(""), 0.0f};
  float absmax;
  std::memcpy(&absmax, &max_bits, sizeof absmax);
  if (!(absmax >= kSmallestAbsMax)) return {0.0f, 0.0f};
  return {absmax / 127.0f, 127.0f / absmax};
}

inline int32_t PackPair(int32_t low, int32_t high) {
  return static_cast<int32_t>((static_cast<uint32_t>(low) & 0xffffu) |
                              (static_cast<uint32_t>(high) << 16));
}

// Sums of the codes of 16 depths each.
void PutSums(const int32_t* sums, int begin, int group, float scale, const QuantisedRowOut& out) {
  const int width = out.width;
  for (int j = 0; j < group / 16; ++j) out.neg_sum16[(begin / 16 + j) * width] = -sums[j];
  for (int j = 0; j < group / 32; ++j) {
    const int32_t sum = sums[2 * j] + sums[2 * j + 1];
    out.neg_sum32[(begin / 32 + j) * width] = -sum;
    if (group == 32) {
      out.scaled_sum[(begin / 32 + j) * width] = scale * static_cast<float>(sum);
    } else {
      out.sum_pair16[(begin / 32 + j) * width] = PackPair(sums[2 * j], sums[2 * j + 1]);
    }
  }
  if (group == 32) return;
  for (int j = 0; j < group / 64; ++j) {
    out.sum_pair32[(begin / 64 + j) * width] =
        PackPair(sums[4 * j] + sums[4 * j + 1], sums[4 * j + 2] + sums[4 * j + 3]);
  }
}

// Of a row with one scale.
inline GroupScale ScaleOfRow(int32_t max_bits, float given) {
  if (max_bits >= kInfinityBits || given == 0.0f) return ScaleOfGroup(max_bits);
  return {given, 1.0f / given};
}

// MaxBits(x, n) is the largest magnitude of n floats, as bits. Codes(x, n, scale, stride, codes,
// sums) writes n codes of n floats, four depths each `stride` bytes, and the sum of each 16. n is a
// multiple of 16, at most 256.
template <int32_t (*MaxBits)(const float*, int),
          void (*Codes)(const float*, int, GroupScale, ptrdiff_t, int8_t*, int32_t*)>
void QuantiseRow(const float* x, int cols, const QuantiseRule& rule, const QuantisedRowOut& out) {
  const int group = rule.group;
  alignas(64) float padded[256];
  const auto group_at = [&](int begin) {
    if (cols - begin >= group) return x + begin;
    for (int i = 0; i < group; ++i) padded[i] = begin + i < cols ? x[begin + i] : 0.0f;
    return static_cast<const float*>(padded);
  };
  GroupScale scale{};
  if (rule.whole_row) {
    int32_t max_bits = 0;
    for (int begin = 0; begin < cols; begin += group) {
      const int32_t bits = MaxBits(group_at(begin), group);
      max_bits = bits > max_bits ? bits : max_bits;
    }
    scale = ScaleOfRow(max_bits, rule.row_scale);
  }
  for (int begin = 0, g = 0; begin < cols; begin += group, ++g) {
    const float* src = group_at(begin);
    if (!rule.whole_row) scale = ScaleOfGroup(MaxBits(src, group));
    int32_t sums[16];
    Codes(src, group, scale, ptrdiff_t{4} * out.width,
          out.codes + static_cast<ptrdiff_t>(begin) * out.width, sums);
    out.scale[g * out.width] = scale.scale;
    PutSums(sums, begin, group, scale.scale, out);
  }
}

}  // namespace
}  // namespace nibble::NIBBLE_ISA_NS
