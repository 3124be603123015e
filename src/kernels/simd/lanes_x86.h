#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

// What AVX2 and AVX-512 share.
namespace nibble::NIBBLE_ISA_NS {
namespace {

// The f16 of 16 FP8 codes. E5M2 is the upper half of an f16. E4M3 becomes value · 2^-8: the
// exponent of an f16 has one bit and a bias of 8 more, and the sign, extended and shifted, stands
// in its own place and in that of the exponent's first bit. Its only NaN is 0x7f.
NIBBLE_INLINE __m256i HalvesOfE5M2(const uint8_t* p) {
  const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_slli_epi16(_mm256_cvtepu8_epi16(codes), 8);
}
NIBBLE_INLINE __m256i HalvesOfE4M3(const uint8_t* p) {
  const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m256i moved = _mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7);
  const __m256i magnitude = _mm256_and_si256(moved, _mm256_set1_epi16(0x3f80));
  const __m256i nan = _mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x3f80));
  return _mm256_or_si256(_mm256_and_si256(moved, _mm256_set1_epi16(~0x4000)), nan);
}

// Stores 16 signed bytes, four each `stride` bytes, and returns their sum.
NIBBLE_INLINE int32_t PutBytes(__m128i bytes, ptrdiff_t stride, int8_t* to) {
  const auto put = [&](int i, int word) { __builtin_memcpy(to + i * stride, &word, sizeof word); };
  put(0, _mm_cvtsi128_si32(bytes));
  put(1, _mm_extract_epi32(bytes, 1));
  put(2, _mm_extract_epi32(bytes, 2));
  put(3, _mm_extract_epi32(bytes, 3));
  // Sums of eight bytes each, which must be unsigned: 128 more than the codes.
  const __m128i shifted = _mm_xor_si128(bytes, _mm_set1_epi8(static_cast<char>(0x80)));
  const __m128i halves = _mm_sad_epu8(shifted, _mm_setzero_si128());
  return _mm_cvtsi128_si32(halves) + _mm_extract_epi32(halves, 2) - 16 * 128;
}

}  // namespace
}  // namespace nibble::NIBBLE_ISA_NS
