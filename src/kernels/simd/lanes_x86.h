#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

// What AVX2 and AVX-512 share.
namespace nibble::NIBBLE_ISA_NS {
namespace {

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
