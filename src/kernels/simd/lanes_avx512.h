#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/simd/lanes_x86.h"

namespace nibble::NIBBLE_ISA_NS {
namespace {

struct U8x64 {
  __m512i v;
};
struct I32x16 {
  __m512i v;
};
struct F32x16 {
  __m512 v;
};

NIBBLE_INLINE U8x64 LoadU8(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
NIBBLE_INLINE void StoreU8(uint8_t* p, U8x64 a) { _mm512_store_si512(p, a.v); }
NIBBLE_INLINE U8x64 And(U8x64 a, int mask) {
  return {_mm512_and_si512(a.v, _mm512_set1_epi8(static_cast<char>(mask)))};
}
NIBBLE_INLINE U8x64 Or(U8x64 a, U8x64 b) { return {_mm512_or_si512(a.v, b.v)}; }
// Shifts let bits of the neighbouring byte in: mask afterwards.
NIBBLE_INLINE U8x64 ShiftRight(U8x64 a, int n) {
  return {_mm512_srli_epi16(a.v, static_cast<unsigned>(n))};
}
NIBBLE_INLINE U8x64 ShiftLeft(U8x64 a, int n) {
  return {_mm512_slli_epi16(a.v, static_cast<unsigned>(n))};
}
// table[a] for a in 0 … 15.
NIBBLE_INLINE U8x64 Lookup(const uint8_t* table, U8x64 a) {
  const __m128i t = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return {_mm512_shuffle_epi8(_mm512_broadcast_i32x4(t), a.v)};
}

NIBBLE_INLINE F32x16 ZeroF() { return {_mm512_setzero_ps()}; }
NIBBLE_INLINE F32x16 SplatF(float x) { return {_mm512_set1_ps(x)}; }
NIBBLE_INLINE F32x16 LoadF(const float* p) { return {_mm512_loadu_ps(p)}; }
NIBBLE_INLINE void StoreF(float* p, F32x16 a) { _mm512_storeu_ps(p, a.v); }
NIBBLE_INLINE F32x16 Add(F32x16 a, F32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
NIBBLE_INLINE F32x16 Mul(F32x16 a, F32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
NIBBLE_INLINE F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
NIBBLE_INLINE F32x16 Neg(F32x16 a) { return {_mm512_xor_ps(a.v, _mm512_set1_ps(-0.0f))}; }
NIBBLE_INLINE F32x16 BitsF(I32x16 a) { return {_mm512_castsi512_ps(a.v)}; }
NIBBLE_INLINE I32x16 AsBits(F32x16 a) { return {_mm512_castps_si512(a.v)}; }

NIBBLE_INLINE I32x16 LoadI(const int32_t* p) { return {_mm512_loadu_si512(p)}; }
NIBBLE_INLINE void StoreI(int32_t* p, I32x16 a) { _mm512_storeu_si512(p, a.v); }
NIBBLE_INLINE I32x16 ZeroI() { return {_mm512_setzero_si512()}; }
NIBBLE_INLINE I32x16 SplatI(int32_t x) { return {_mm512_set1_epi32(x)}; }
NIBBLE_INLINE I32x16 AddI(I32x16 a, I32x16 b) { return {_mm512_add_epi32(a.v, b.v)}; }
NIBBLE_INLINE I32x16 SubI(I32x16 a, I32x16 b) { return {_mm512_sub_epi32(a.v, b.v)}; }
NIBBLE_INLINE I32x16 AndI(I32x16 a, I32x16 b) { return {_mm512_and_si512(a.v, b.v)}; }
NIBBLE_INLINE I32x16 OrI(I32x16 a, I32x16 b) { return {_mm512_or_si512(a.v, b.v)}; }
NIBBLE_INLINE I32x16 ShiftLeftI(I32x16 a, int n) {
  return {_mm512_slli_epi32(a.v, static_cast<unsigned>(n))};
}
NIBBLE_INLINE I32x16 ShiftRightI(I32x16 a, int n) {
  return {_mm512_srli_epi32(a.v, static_cast<unsigned>(n))};
}
// a == b ? yes : no
NIBBLE_INLINE I32x16 SelectEqual(I32x16 a, I32x16 b, I32x16 yes, I32x16 no) {
  return {_mm512_mask_blend_epi32(_mm512_cmpeq_epi32_mask(a.v, b.v), no.v, yes.v)};
}
NIBBLE_INLINE F32x16 ToFloat(I32x16 a) { return {_mm512_cvtepi32_ps(a.v)}; }
NIBBLE_INLINE I32x16 WidenU8(const uint8_t* p) {
  return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
NIBBLE_INLINE I32x16 WidenI8(const uint8_t* p) {
  return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
NIBBLE_INLINE I32x16 WidenU16(const uint8_t* p) {
  return {_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
NIBBLE_INLINE F32x16 FromHalves(__m256i halves) { return {_mm512_cvtph_ps(halves)}; }
NIBBLE_INLINE F32x16 LoadF16(const uint8_t* p) {
  return FromHalves(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
NIBBLE_INLINE F32x16 LoadE5M2(const uint8_t* p) { return FromHalves(HalvesOfE5M2(p)); }
NIBBLE_INLINE F32x16 LoadE4M3(const uint8_t* p) {
  return Mul(FromHalves(HalvesOfE4M3(p)), SplatF(256));
}
NIBBLE_INLINE I32x16 AsI32(U8x64 a) { return {a.v}; }

NIBBLE_INLINE I32x16 MaxI(I32x16 a, I32x16 b) { return {_mm512_max_epi32(a.v, b.v)}; }
NIBBLE_INLINE int32_t LargestOf(I32x16 a) { return _mm512_reduce_max_epi32(a.v); }
// Stores the low bytes of the lanes, four each `stride` bytes, and returns their sum; the lanes are
// within ±127.
NIBBLE_INLINE int32_t PutCodes(I32x16 a, ptrdiff_t stride, int8_t* to) {
  return PutBytes(_mm512_cvtepi32_epi8(a.v), stride, to);
}

// acc + Σ of the two i16 products of each lane.
NIBBLE_INLINE I32x16 MaddPairs(I32x16 acc, I32x16 a, I32x16 b) {
#if defined(__AVX512VNNI__)
  return {_mm512_dpwssd_epi32(acc.v, a.v, b.v)};
#else
  return {_mm512_add_epi32(acc.v, _mm512_madd_epi16(a.v, b.v))};
#endif
}

// Steps of the integer dot; see kernels/simd/int_dot.h.
#if defined(__AVX512VNNI__)
#define NIBBLE_DOT_VNNI 1
NIBBLE_INLINE I32x16 DotU8I8(I32x16 acc, U8x64 w, int32_t a) {
  return {_mm512_dpbusd_epi32(acc.v, w.v, _mm512_set1_epi32(a))};
}
#else
#define NIBBLE_DOT_MADDUBS 1
NIBBLE_INLINE I32x16 MaddU8I8(U8x64 w, int32_t a) {
  return {_mm512_maddubs_epi16(w.v, _mm512_set1_epi32(a))};
}
// A sum stays in a register and is added to at once (kernels/simd/lanes_avx2.h).
NIBBLE_INLINE void Pin(I32x16& x) { asm volatile("" : "+v"(x.v)); }
NIBBLE_INLINE I32x16 Add16(I32x16 a, I32x16 b) { return {_mm512_add_epi16(a.v, b.v)}; }
NIBBLE_INLINE I32x16 WidenPairs(I32x16 a) { return {_mm512_madd_epi16(a.v, _mm512_set1_epi16(1))}; }
// |w| · (a with w's sign), w signed: pair sums of at most 2 · 128 · 127 = 32,512.
NIBBLE_INLINE I32x16 MaddI8I8(U8x64 w, int32_t a) {
  const __m512i b = _mm512_set1_epi32(a);
  const __m512i moved =
      _mm512_mask_sub_epi8(b, _mm512_movepi8_mask(w.v), _mm512_setzero_si512(), b);
  return {_mm512_maddubs_epi16(_mm512_abs_epi8(w.v), moved)};
}
NIBBLE_INLINE U8x64 FlipTopBit(U8x64 a) {
  return {_mm512_xor_si512(a.v, _mm512_set1_epi8(static_cast<char>(0x80)))};
}
#endif

// Register blocks (docs/performance.md): panels × tokens of the multiply from scratch, the most
// tokens of the kernel that unpacks in registers, and how many tokens use that kernel.
constexpr int kTilePanels = 2;
constexpr int kTileTokens = 8;
constexpr int kFusedTokens = 8;
constexpr int kFusedLimit = 32;
constexpr int kFloatTileTokens = 8;
// Of floats straight from the packed bytes: the most tokens of a multiply, and how many use it.
constexpr int kFusedFloatTokens = 4;
constexpr int kFusedFloatLimit = 32;

}  // namespace
}  // namespace nibble::NIBBLE_ISA_NS
