#pragma once

// What attention over sealed pages needs beside lanes.h.
#include "kernels/simd/lanes.h"

namespace nibble::NIBBLE_ISA_NS {
namespace {

#if defined(__AVX512F__)
NIBBLE_INLINE U8x64 AsU8(I32x16 a) { return {a.v}; }
NIBBLE_INLINE U8x64 AddBytes(U8x64 a, U8x64 b) { return {_mm512_add_epi8(a.v, b.v)}; }
// a · b + c in 16 bits.
NIBBLE_INLINE I32x16 MulAdd16(I32x16 a, I32x16 b, I32x16 c) {
  return {_mm512_add_epi16(_mm512_mullo_epi16(a.v, b.v), c.v)};
}
NIBBLE_INLINE I32x16 ShiftRight16(I32x16 a, int n) {
  return {_mm512_srli_epi16(a.v, static_cast<unsigned>(n))};
}
// 32 numbers of 0 … 127 as bytes; quad q of them becomes word QuadPlace(q).
NIBBLE_INLINE void StoreQuads(uint8_t* p, I32x16 a, I32x16 b) {
  const __m256i bytes = _mm512_cvtepi16_epi8(_mm512_packs_epi32(a.v, b.v));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), bytes);
}
constexpr int QuadPlace(int quad) { return quad % 4 * 2 + quad / 4; }
// acc + Σ of each lane's four signed bytes times the four weights (0 … 127) of p: two products are
// at most 2 · 127 · 127 = 32,258.
NIBBLE_INLINE I32x16 DotWeights(I32x16 acc, int32_t p, U8x64 v) {
  const __m512i weights = _mm512_set1_epi32(p);
#if defined(__AVX512VNNI__)
  return {_mm512_dpbusd_epi32(acc.v, weights, v.v)};
#else
  const __m512i pairs = _mm512_maddubs_epi16(weights, v.v);
  return {_mm512_add_epi32(acc.v, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)))};
#endif
}
#if defined(NIBBLE_DOT_MADDUBS)
NIBBLE_INLINE I32x16 MaddU8I8(U8x64 a, U8x64 b) { return {_mm512_maddubs_epi16(a.v, b.v)}; }
#endif
// Rows and vectors of 16 lanes of a tile.
constexpr int kSealedRows = 8;
constexpr int kSealedVectors = 2;

#elif defined(__AVX2__)
NIBBLE_INLINE U8x64 AsU8(I32x16 x) { return {x.a, x.b}; }
NIBBLE_INLINE U8x64 AddBytes(U8x64 x, U8x64 y) {
  return {_mm256_add_epi8(x.a, y.a), _mm256_add_epi8(x.b, y.b)};
}
NIBBLE_INLINE I32x16 MulAdd16(I32x16 x, I32x16 y, I32x16 z) {
  return {_mm256_add_epi16(_mm256_mullo_epi16(x.a, y.a), z.a),
          _mm256_add_epi16(_mm256_mullo_epi16(x.b, y.b), z.b)};
}
NIBBLE_INLINE I32x16 ShiftRight16(I32x16 x, int n) {
  return {_mm256_srli_epi16(x.a, n), _mm256_srli_epi16(x.b, n)};
}
NIBBLE_INLINE void StoreQuads(uint8_t* p, I32x16 x, I32x16 y) {
  Store256(p, _mm256_packus_epi16(_mm256_packs_epi32(x.a, x.b), _mm256_packs_epi32(y.a, y.b)));
}
constexpr int QuadPlace(int quad) { return quad % 2 * 4 + quad / 2; }
NIBBLE_INLINE __m256i DotWeights256(__m256i acc, __m256i weights, __m256i v) {
#if defined(__AVXVNNI__)
  return _mm256_dpbusd_avx_epi32(acc, weights, v);
#else
  const __m256i pairs = _mm256_maddubs_epi16(weights, v);
  return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#endif
}
NIBBLE_INLINE I32x16 DotWeights(I32x16 acc, int32_t p, U8x64 v) {
  const __m256i weights = _mm256_set1_epi32(p);
  return {DotWeights256(acc.a, weights, v.a), DotWeights256(acc.b, weights, v.b)};
}
#if defined(NIBBLE_DOT_MADDUBS)
NIBBLE_INLINE I32x16 MaddU8I8(U8x64 x, U8x64 y) {
  return {_mm256_maddubs_epi16(x.a, y.a), _mm256_maddubs_epi16(x.b, y.b)};
}
#endif
constexpr int kSealedRows = 4;
constexpr int kSealedVectors = 1;

#elif defined(__ARM_NEON)
NIBBLE_INLINE uint8x16_t AsU8Q(int32x4_t x) { return vreinterpretq_u8_s32(x); }
NIBBLE_INLINE U8x64 AsU8(I32x16 x) { return {AsU8Q(x.a), AsU8Q(x.b), AsU8Q(x.c), AsU8Q(x.d)}; }
NIBBLE_INLINE U8x64 AddBytes(U8x64 x, U8x64 y) {
  return {vaddq_u8(x.a, y.a), vaddq_u8(x.b, y.b), vaddq_u8(x.c, y.c), vaddq_u8(x.d, y.d)};
}
NIBBLE_INLINE int32x4_t MulAdd16Q(int32x4_t x, int32x4_t y, int32x4_t z) {
  return vreinterpretq_s32_s16(
      vmlaq_s16(vreinterpretq_s16_s32(z), vreinterpretq_s16_s32(x), vreinterpretq_s16_s32(y)));
}
NIBBLE_INLINE I32x16 MulAdd16(I32x16 x, I32x16 y, I32x16 z) {
  return {MulAdd16Q(x.a, y.a, z.a), MulAdd16Q(x.b, y.b, z.b), MulAdd16Q(x.c, y.c, z.c),
          MulAdd16Q(x.d, y.d, z.d)};
}
NIBBLE_INLINE int32x4_t ShiftRight16Q(int32x4_t x, int n) {
  const int16x8_t by = vdupq_n_s16(static_cast<int16_t>(-n));
  return vreinterpretq_s32_u16(vshlq_u16(vreinterpretq_u16_s32(x), by));
}
NIBBLE_INLINE I32x16 ShiftRight16(I32x16 x, int n) {
  return {ShiftRight16Q(x.a, n), ShiftRight16Q(x.b, n), ShiftRight16Q(x.c, n),
          ShiftRight16Q(x.d, n)};
}
NIBBLE_INLINE void StoreSixteen(uint8_t* p, I32x16 x) {
  const uint16x8_t low = vreinterpretq_u16_s16(vcombine_s16(vmovn_s32(x.a), vmovn_s32(x.b)));
  const uint16x8_t high = vreinterpretq_u16_s16(vcombine_s16(vmovn_s32(x.c), vmovn_s32(x.d)));
  vst1q_u8(p, vcombine_u8(vmovn_u16(low), vmovn_u16(high)));
}
NIBBLE_INLINE void StoreQuads(uint8_t* p, I32x16 x, I32x16 y) {
  StoreSixteen(p, x);
  StoreSixteen(p + 16, y);
}
constexpr int QuadPlace(int quad) { return quad; }
NIBBLE_INLINE I32x16 DotWeights(I32x16 acc, int32_t p, U8x64 v) { return DotI8I8(acc, v, p); }
constexpr int kSealedRows = 4;
constexpr int kSealedVectors = 1;
#endif

// The same for values within ±8 over all 32 tokens of a page: without a four-byte dot, sums of
// eight pairs stay in 16 bits (8 · 2 · 127 · 8 = 16,256) and are widened once.
#if defined(NIBBLE_DOT_MADDUBS)
NIBBLE_INLINE I32x16 DotSmall(I32x16 acc, int32_t p, U8x64 v) {
  return Add16(acc, MaddU8I8(AsU8(SplatI(p)), v));
}
NIBBLE_INLINE I32x16 WidenSmall(I32x16 acc) { return WidenPairs(acc); }
#else
NIBBLE_INLINE I32x16 DotSmall(I32x16 acc, int32_t p, U8x64 v) { return DotWeights(acc, p, v); }
NIBBLE_INLINE I32x16 WidenSmall(I32x16 acc) { return acc; }
#endif

NIBBLE_INLINE U8x64 SplatBytes(uint32_t four) { return AsU8(SplatI(static_cast<int32_t>(four))); }

}  // namespace
}  // namespace nibble::NIBBLE_ISA_NS
