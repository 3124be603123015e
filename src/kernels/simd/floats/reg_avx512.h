#pragma once

#include <immintrin.h>

#include <cstdint>

namespace nibble::NIBBLE_ISA_NS {
namespace {

using Reg = __m512;
using Mask = __mmask16;
constexpr int kWidth = 16;
// Register block of attention: rows × registers of accumulators.
constexpr int kTileRows = 4;
constexpr int kTileRegs = 4;
constexpr int kWideRegs = 2;  // of a tile of all eight rows

NIBBLE_INLINE Mask FirstN(int n) { return static_cast<Mask>((1U << n) - 1U); }

NIBBLE_INLINE Reg Set(float x) { return _mm512_set1_ps(x); }
NIBBLE_INLINE Reg Load(const float* p) { return _mm512_loadu_ps(p); }
NIBBLE_INLINE Reg Load(const uint16_t* p) {  // f16
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
NIBBLE_INLINE Reg LoadN(const float* p, int n) { return _mm512_maskz_loadu_ps(FirstN(n), p); }
NIBBLE_INLINE Reg LoadN(const uint16_t* p, int n) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(FirstN(n), p));
}
// E4M3 · 2^-8 by way of f16, whose exponent has one bit and a bias of 8 more. `codes` with their
// sign in all upper bits: shifted, it stands in the sign's place and in that of the exponent's
// first bit.
NIBBLE_INLINE Reg Fp8ToFloat(__m256i codes) {
  const __m256i moved = _mm256_slli_epi16(codes, 7);
  return _mm512_cvtph_ps(_mm256_and_si256(moved, _mm256_set1_epi16(~0x4000)));
}
NIBBLE_INLINE Reg Load(const Fp8* p) {
  return Fp8ToFloat(_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
NIBBLE_INLINE Reg LoadN(const Fp8* p, int n) {
  return Fp8ToFloat(_mm256_cvtepi8_epi16(_mm_maskz_loadu_epi8(FirstN(n), p)));
}
NIBBLE_INLINE void Store(float* p, Reg v) { _mm512_storeu_ps(p, v); }
NIBBLE_INLINE void StoreN(float* p, Reg v, int n) { _mm512_mask_storeu_ps(p, FirstN(n), v); }
NIBBLE_INLINE void StoreHalf(uint16_t* p, Reg v) {
  const __m256i half = _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), half);
}
NIBBLE_INLINE Reg KeepN(Reg v, int n) { return _mm512_maskz_mov_ps(FirstN(n), v); }

NIBBLE_INLINE Reg Add(Reg a, Reg b) { return _mm512_add_ps(a, b); }
NIBBLE_INLINE Reg Sub(Reg a, Reg b) { return _mm512_sub_ps(a, b); }
NIBBLE_INLINE Reg Mul(Reg a, Reg b) { return _mm512_mul_ps(a, b); }
NIBBLE_INLINE Reg Div(Reg a, Reg b) { return _mm512_div_ps(a, b); }
NIBBLE_INLINE Reg Fma(Reg a, Reg b, Reg c) { return _mm512_fmadd_ps(a, b, c); }
// a > b ? a : b, so b where either is NaN.
NIBBLE_INLINE Reg Max(Reg a, Reg b) { return _mm512_max_ps(a, b); }
// a < b ? a : b
NIBBLE_INLINE Reg Min(Reg a, Reg b) { return _mm512_min_ps(a, b); }

NIBBLE_INLINE Reg Negate(Reg a) { return _mm512_xor_ps(a, Set(-0.0F)); }
NIBBLE_INLINE Reg Abs(Reg a) { return _mm512_andnot_ps(Set(-0.0F), a); }
NIBBLE_INLINE Reg CopySign(Reg magnitude, Reg sign) {
  const __m512i bit = _mm512_set1_epi32(INT32_MIN);  // (bit & sign) | (~bit & magnitude)
  return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(bit, _mm512_castps_si512(sign),
                                                       _mm512_castps_si512(magnitude), 0xca));
}
NIBBLE_INLINE Mask Less(Reg a, Reg b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
NIBBLE_INLINE Mask Equal(Reg a, Reg b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
NIBBLE_INLINE Reg Select(Mask m, Reg yes, Reg no) { return _mm512_mask_blend_ps(m, no, yes); }
NIBBLE_INLINE bool AnyMore(Reg a, Reg b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ) != 0; }
NIBBLE_INLINE uint32_t BitsAtLeast(Reg a, Reg b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }

// p · 2^n, where n stands in the low bits of t.
NIBBLE_INLINE Reg Scale2(Reg p, Reg t) {
  return _mm512_castsi512_ps(
      _mm512_add_epi32(_mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(t), 23)));
}
NIBBLE_INLINE float First(Reg a) { return _mm512_cvtss_f32(a); }
NIBBLE_INLINE Reg SwapPairs(Reg a) { return _mm512_permute_ps(a, 0xb1); }

// The tree over the lanes of a register: i and i + 8, then 4, 2, 1.
NIBBLE_INLINE float TreeSum(Reg a) {
  const __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  c = _mm_add_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
NIBBLE_INLINE float TreeMax(Reg a) {
  const __m256 b = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  c = _mm_max_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}
// The largest lane of each of eight registers.
NIBBLE_INLINE void MaxOfEight(const Reg* a, float* to) {
  const auto pairs = [](Reg x, Reg y) {
    return _mm512_max_ps(_mm512_unpacklo_ps(x, y), _mm512_unpackhi_ps(x, y));
  };
  const auto quads = [](Reg x, Reg y) {
    return _mm512_max_ps(_mm512_shuffle_ps(x, y, 0x44), _mm512_shuffle_ps(x, y, 0xee));
  };
  const Reg low = quads(pairs(a[0], a[1]), pairs(a[2], a[3]));
  const Reg high = quads(pairs(a[4], a[5]), pairs(a[6], a[7]));
  const Reg both =
      _mm512_max_ps(_mm512_shuffle_f32x4(low, high, 0x88), _mm512_shuffle_f32x4(low, high, 0xdd));
  const Reg folded = _mm512_max_ps(both, _mm512_shuffle_f32x4(both, both, 0xb1));
  _mm256_storeu_ps(to, _mm512_castps512_ps256(_mm512_shuffle_f32x4(folded, folded, 0x08)));
}

}  // namespace
}  // namespace nibble::NIBBLE_ISA_NS
