#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace nibble {

// Sixteen bytes at a time in the compilers' own vector type: one register of every x86-64 and ARM
// processor, so that packing needs no kernels per instruction set.
using Words4 = uint32_t __attribute__((vector_size(16)));

template <class Vector = Words4>
Vector LoadVector(const void* bytes) {
  Vector vector;
  std::memcpy(&vector, bytes, sizeof vector);
  return vector;
}

template <class Vector>
void StoreVector(uint8_t* dst, Vector vector) {
  std::memcpy(dst, &vector, sizeof vector);
}

// Four rows of 4 words become word[i] = {row 0's word i, row 1's, row 2's, row 3's}.
struct Quad {
  Words4 word[4];
};

inline Quad Transpose(Words4 a, Words4 b, Words4 c, Words4 d) {
  const Words4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const Words4 ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Words4 cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Words4 cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  return {{__builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5),
           __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7),
           __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5),
           __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7)}};
}

// The bits of `mask` in every byte.
inline Words4 InEveryByte(Words4 words, uint8_t mask) { return words & (mask * 0x01010101u); }

// Swaps bits [k, k + kWidth) of every byte of b with bits [k + kWidth, …) of a, for all k that
// `mask` holds: one stage of a transposition of bits between two vectors.
template <int kWidth>
void SwapBits(Words4& a, Words4& b, uint8_t mask) {
  const Words4 differ = InEveryByte(a >> kWidth ^ b, mask);
  b ^= differ;
  a ^= differ << kWidth;
}

// Four vectors of 4 crumbs a byte: crumb q of w[i] becomes crumb i of w[q].
inline void TransposeCrumbs(Words4 (&w)[4]) {
  for (int i = 0; i < 2; ++i) SwapBits<4>(w[i], w[i + 2], 0x0f);
  for (int i = 0; i < 4; i += 2) SwapBits<2>(w[i], w[i + 1], 0x33);
}

// Eight vectors of 8 bits a byte: bit g of w[s] becomes bit s of w[g].
inline void TransposeBits(Words4 (&w)[8]) {
  for (int i = 0; i < 4; ++i) SwapBits<4>(w[i], w[i + 4], 0x0f);
  for (int i : {0, 1, 4, 5}) SwapBits<2>(w[i], w[i + 2], 0x33);
  for (int i = 0; i < 8; i += 2) SwapBits<1>(w[i], w[i + 1], 0x55);
}

// In every word: bit 4 s + k to bit 8 k + s. Twice the even bits to the lower half and the odd ones
// to the upper (Warren, Hacker's Delight, 7-2: unshuffle), which moves bit e to e / 2 + 16 (e % 2).
inline Words4 NibbleBitsToBytes(Words4 words) {
  const auto swap = [&](int width, uint32_t mask) {
    const Words4 differ = (words ^ words >> width) & mask;
    words ^= differ ^ differ << width;
  };
  for (int round = 0; round < 2; ++round) {
    swap(1, 0x22222222u);
    swap(2, 0x0c0c0c0cu);
    swap(4, 0x00f000f0u);
    swap(8, 0x0000ff00u);
  }
  return words;
}

}  // namespace nibble
