#pragma once

#include <immintrin.h>

#include <cstdint>

namespace nibble::NIBBLE_ISA_NS {
namespace {

using Reg = __m256;
using Mask = __m256;
constexpr int kWidth = 8;
// Register block of attention: rows × registers of accumulators, within 16 registers.
constexpr int kTileRows = 4;
constexpr int kTileRegs = 2;
constexpr int kWideRegs = 1;  // of a tile of all eight rows

alignas(64) constexpr int32_t kFirst[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
NIBBLE_INLINE __m256i FirstN(int n) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kFirst + 8 - n));
}

NIBBLE_INLINE Reg Set(float x) { return _mm256_set1_ps(x); }
NIBBLE_INLINE Reg Load(const float* p) { return _mm256_loadu_ps(p); }
NIBBLE_INLINE Reg Load(const uint16_t* p) {  // f16
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
NIBBLE_INLINE Reg LoadN(const float* p, int n) { return _mm256_maskload_ps(p, FirstN(n)); }
NIBBLE_INLINE Reg LoadN(const uint16_t* p, int n) {
  alignas(16) uint16_t copy[8] = {};
  for (int i = 0; i < n; ++i) copy[i] = p[i];
  return Load(copy);
}
// E4M3 · 2^-8 by way of f16, whose exponent has one bit and a bias of 8 more. The code's sign,
// extended and shifted, stands in the sign's place and in that of the exponent's first bit.
NIBBLE_INLINE Reg Load(const Fp8* p) {
  const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  const __m128i moved = _mm_slli_epi16(_mm_cvtepi8_epi16(codes), 7);
  return _mm256_cvtph_ps(_mm_and_si128(moved, _mm_set1_epi16(~0x4000)));
}
NIBBLE_INLINE Reg LoadN(const Fp8* p, int n) {
  Fp8 copy[8] = {};
  for (int i = 0; i < n; ++i) copy[i] = p[i];
  return Load(copy);
}
NIBBLE_INLINE void Store(float* p, Reg v) { _mm256_storeu_ps(p, v); }
NIBBLE_INLINE void StoreN(float* p, Reg v, int n) { _mm256_maskstore_ps(p, FirstN(n), v); }
NIBBLE_INLINE void StoreHalf(uint16_t* p, Reg v) {
  const __m128i half = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), half);
}
NIBBLE_INLINE Reg KeepN(Reg v, int n) { return _mm256_and_ps(v, _mm256_castsi256_ps(FirstN(n))); }

NIBBLE_INLINE Reg Add(Reg a, Reg b) { return _mm256_add_ps(a, b); }
NIBBLE_INLINE Reg Sub(Reg a, Reg b) { return _mm256_sub_ps(a, b); }
NIBBLE_INLINE Reg Mul(Reg a, Reg b) { return _mm256_mul_ps(a, b); }
NIBBLE_INLINE Reg Div(Reg a, Reg b) { return _mm256_div_ps(a, b); }
NIBBLE_INLINE Reg Fma(Reg a, Reg b, Reg c) { return _mm256_fmadd_ps(a, b, c); }
// a > b ? a : b, so b where either is NaN.
NIBBLE_INLINE Reg Max(Reg a, Reg b) { return _mm256_max_ps(a, b); }
// a < b ? a : b
NIBBLE_INLINE Reg Min(Reg a, Reg b) { return _mm256_min_ps(a, b); }

NIBBLE_INLINE Reg Negate(Reg a) { return _mm256_xor_ps(a, Set(-0.0F)); }
NIBBLE_INLINE Reg Abs(Reg a) { return _mm256_andnot_ps(Set(-0.0F), a); }
NIBBLE_INLINE Reg CopySign(Reg magnitude, Reg sign) {
  return _mm256_or_ps(_mm256_and_ps(Set(-0.0F), sign), Abs(magnitude));
}
NIBBLE_INLINE Mask Less(Reg a, Reg b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
NIBBLE_INLINE Mask Equal(Reg a, Reg b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
NIBBLE_INLINE Reg Select(Mask m, Reg yes, Reg no) { return _mm256_blendv_ps(no, yes, m); }
NIBBLE_INLINE bool AnyMore(Reg a, Reg b) {
  return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)) != 0;
}
NIBBLE_INLINE uint32_t BitsAtLeast(Reg a, Reg b) {
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GE_OQ)));
}

// p · 2^n, where n stands in the low bits of t.
NIBBLE_INLINE Reg Scale2(Reg p, Reg t) {
  return _mm256_castsi256_ps(
      _mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_castps_si256(t), 23)));
}
// 2^n
NIBBLE_INLINE Reg PowerOf2(Reg t) { return Scale2(Set(1.0F), t); }
// a < b ? 0 : x
NIBBLE_INLINE Reg KeepNotLess(Reg a, Reg b, Reg x) {
  return _mm256_and_ps(_mm256_cmp_ps(a, b, _CMP_NLT_UQ), x);
}
NIBBLE_INLINE float First(Reg a) { return _mm256_cvtss_f32(a); }
NIBBLE_INLINE Reg SwapPairs(Reg a) { return _mm256_permute_ps(a, 0xb1); }

// The tree over the lanes of a register: i and i + 4, then 2, 1.
NIBBLE_INLINE float TreeSum(Reg a) {
  __m128 c = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  c = _mm_add_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
NIBBLE_INLINE float TreeMax(Reg a) {
  __m128 c = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  c = _mm_max_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}
// The largest lane of each of eight registers.
NIBBLE_INLINE void MaxOfEight(const Reg* a, float* to) {
  const auto pairs = [](Reg x, Reg y) {
    return _mm256_max_ps(_mm256_unpacklo_ps(x, y), _mm256_unpackhi_ps(x, y));
  };
  const auto quads = [](Reg x, Reg y) {
    return _mm256_max_ps(_mm256_shuffle_ps(x, y, 0x44), _mm256_shuffle_ps(x, y, 0xee));
  };
  const Reg low = quads(pairs(a[0], a[1]), pairs(a[2], a[3]));
  const Reg high = quads(pairs(a[4], a[5]), pairs(a[6], a[7]));
  Store(to, _mm256_max_ps(_mm256_permute2f128_ps(low, high, 0x20),
                          _mm256_permute2f128_ps(low, high, 0x31)));
}

}  // namespace
}  // namespace nibble::NIBBLE_ISA_NS
