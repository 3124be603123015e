#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/simd/lanes_x86.h"

namespace nibble::NIBBLE_ISA_NS {
namespace {

struct U8x64 {
  __m256i a, b;
};
struct I32x16 {
  __m256i a, b;
};
struct F32x16 {
  __m256 a, b;
};

NIBBLE_INLINE __m256i Load256(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
NIBBLE_INLINE void Store256(void* p, __m256i v) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), v);
}

NIBBLE_INLINE U8x64 LoadU8(const uint8_t* p) { return {Load256(p), Load256(p + 32)}; }
NIBBLE_INLINE void StoreU8(uint8_t* p, U8x64 x) {
  Store256(p, x.a);
  Store256(p + 32, x.b);
}
NIBBLE_INLINE U8x64 And(U8x64 x, int mask) {
  const __m256i m = _mm256_set1_epi8(static_cast<char>(mask));
  return {_mm256_and_si256(x.a, m), _mm256_and_si256(x.b, m)};
}
NIBBLE_INLINE U8x64 Or(U8x64 x, U8x64 y) {
  return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)};
}
// Shifts let bits of the neighbouring byte in: mask afterwards.
NIBBLE_INLINE U8x64 ShiftRight(U8x64 x, int n) {
  return {_mm256_srli_epi16(x.a, n), _mm256_srli_epi16(x.b, n)};
}
NIBBLE_INLINE U8x64 ShiftLeft(U8x64 x, int n) {
  return {_mm256_slli_epi16(x.a, n), _mm256_slli_epi16(x.b, n)};
}
// table[x] for x in 0 … 15.
NIBBLE_INLINE U8x64 Lookup(const uint8_t* table, U8x64 x) {
  const __m256i t =
      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  return {_mm256_shuffle_epi8(t, x.a), _mm256_shuffle_epi8(t, x.b)};
}

NIBBLE_INLINE F32x16 ZeroF() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
NIBBLE_INLINE F32x16 SplatF(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
NIBBLE_INLINE F32x16 LoadF(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
NIBBLE_INLINE void StoreF(float* p, F32x16 x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
NIBBLE_INLINE F32x16 Add(F32x16 x, F32x16 y) {
  return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
NIBBLE_INLINE F32x16 Mul(F32x16 x, F32x16 y) {
  return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
NIBBLE_INLINE F32x16 Fma(F32x16 x, F32x16 y, F32x16 z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
NIBBLE_INLINE F32x16 Neg(F32x16 x) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_xor_ps(x.a, sign), _mm256_xor_ps(x.b, sign)};
}
NIBBLE_INLINE F32x16 BitsF(I32x16 x) {
  return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)};
}
NIBBLE_INLINE I32x16 AsBits(F32x16 x) {
  return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)};
}

NIBBLE_INLINE I32x16 LoadI(const int32_t* p) { return {Load256(p), Load256(p + 8)}; }
NIBBLE_INLINE void StoreI(int32_t* p, I32x16 x) {
  Store256(p, x.a);
  Store256(p + 8, x.b);
}
NIBBLE_INLINE I32x16 ZeroI() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
NIBBLE_INLINE I32x16 SplatI(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
NIBBLE_INLINE I32x16 AddI(I32x16 x, I32x16 y) {
  return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
}
NIBBLE_INLINE I32x16 SubI(I32x16 x, I32x16 y) {
  return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)};
}
NIBBLE_INLINE I32x16 MaxI(I32x16 x, I32x16 y) {
  return {_mm256_max_epi32(x.a, y.a), _mm256_max_epi32(x.b, y.b)};
}
NIBBLE_INLINE int32_t LargestOf(I32x16 x) {
  const __m256i eight = _mm256_max_epi32(x.a, x.b);
  __m128i v = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  v = _mm_max_epi32(v, _mm_shuffle_epi32(v, 0x4e));
  v = _mm_max_epi32(v, _mm_shuffle_epi32(v, 0xb1));
  return _mm_cvtsi128_si32(v);
}
// Stores the low bytes of the lanes, four each `stride` bytes, and returns their sum; the lanes are
// within ±127.
NIBBLE_INLINE int32_t PutCodes(I32x16 x, ptrdiff_t stride, int8_t* to) {
  const auto narrow = [](__m256i v) {
    return _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  };
  return PutBytes(_mm_packs_epi16(narrow(x.a), narrow(x.b)), stride, to);
}
NIBBLE_INLINE I32x16 AndI(I32x16 x, I32x16 y) {
  return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)};
}
NIBBLE_INLINE I32x16 OrI(I32x16 x, I32x16 y) {
  return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)};
}
NIBBLE_INLINE I32x16 ShiftLeftI(I32x16 x, int n) {
  return {_mm256_slli_epi32(x.a, n), _mm256_slli_epi32(x.b, n)};
}
NIBBLE_INLINE I32x16 ShiftRightI(I32x16 x, int n) {
  return {_mm256_srli_epi32(x.a, n), _mm256_srli_epi32(x.b, n)};
}
// x == y ? yes : no
NIBBLE_INLINE I32x16 SelectEqual(I32x16 x, I32x16 y, I32x16 yes, I32x16 no) {
  return {_mm256_blendv_epi8(no.a, yes.a, _mm256_cmpeq_epi32(x.a, y.a)),
          _mm256_blendv_epi8(no.b, yes.b, _mm256_cmpeq_epi32(x.b, y.b))};
}
NIBBLE_INLINE F32x16 ToFloat(I32x16 x) {
  return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)};
}
NIBBLE_INLINE __m128i Load128(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
NIBBLE_INLINE I32x16 WidenU8(const uint8_t* p) {
  const __m128i v = Load128(p);
  return {_mm256_cvtepu8_epi32(v), _mm256_cvtepu8_epi32(_mm_srli_si128(v, 8))};
}
NIBBLE_INLINE I32x16 WidenI8(const uint8_t* p) {
  const __m128i v = Load128(p);
  return {_mm256_cvtepi8_epi32(v), _mm256_cvtepi8_epi32(_mm_srli_si128(v, 8))};
}
NIBBLE_INLINE I32x16 WidenU16(const uint8_t* p) {
  return {_mm256_cvtepu16_epi32(Load128(p)), _mm256_cvtepu16_epi32(Load128(p + 16))};
}
NIBBLE_INLINE F32x16 FromHalves(__m256i halves) {
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
          _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
}
NIBBLE_INLINE F32x16 LoadF16(const uint8_t* p) {
  return {_mm256_cvtph_ps(Load128(p)), _mm256_cvtph_ps(Load128(p + 16))};
}
NIBBLE_INLINE F32x16 LoadE5M2(const uint8_t* p) { return FromHalves(HalvesOfE5M2(p)); }
NIBBLE_INLINE F32x16 LoadE4M3(const uint8_t* p) {
  return Mul(FromHalves(HalvesOfE4M3(p)), SplatF(256));
}
NIBBLE_INLINE I32x16 AsI32(U8x64 x) { return {x.a, x.b}; }

// acc + Σ of the two i16 products of each lane.
NIBBLE_INLINE I32x16 MaddPairs(I32x16 acc, I32x16 x, I32x16 y) {
  return {_mm256_add_epi32(acc.a, _mm256_madd_epi16(x.a, y.a)),
          _mm256_add_epi32(acc.b, _mm256_madd_epi16(x.b, y.b))};
}

// Steps of the integer dot; see kernels/simd/int_dot.h.
#if defined(__AVXVNNI__)
#define NIBBLE_DOT_VNNI 1
NIBBLE_INLINE I32x16 DotU8I8(I32x16 acc, U8x64 w, int32_t a) {
  const __m256i b = _mm256_set1_epi32(a);
  return {_mm256_dpbusd_avx_epi32(acc.a, w.a, b), _mm256_dpbusd_avx_epi32(acc.b, w.b, b)};
}
constexpr int kTileTokens = 5;
constexpr int kFusedTokens = 4;
constexpr int kFusedLimit = 8;
#else
#define NIBBLE_DOT_MADDUBS 1
NIBBLE_INLINE I32x16 MaddU8I8(U8x64 w, int32_t a) {
  const __m256i b = _mm256_set1_epi32(a);
  return {_mm256_maddubs_epi16(w.a, b), _mm256_maddubs_epi16(w.b, b)};
}
// A sum stays in registers and is added to at once: GCC 12 otherwise keeps all products of a group
// in memory and adds them at its end (Q4_0 at 256 tokens: 87 in place of 128 G multiply-adds/s).
NIBBLE_INLINE void Pin(I32x16& x) { asm volatile("" : "+x"(x.a), "+x"(x.b)); }
NIBBLE_INLINE I32x16 Add16(I32x16 x, I32x16 y) {
  return {_mm256_add_epi16(x.a, y.a), _mm256_add_epi16(x.b, y.b)};
}
NIBBLE_INLINE I32x16 WidenPairs(I32x16 x) {
  const __m256i one = _mm256_set1_epi16(1);
  return {_mm256_madd_epi16(x.a, one), _mm256_madd_epi16(x.b, one)};
}
// |w| · (a with w's sign), w signed: pair sums of at most 2 · 128 · 127 = 32,512.
NIBBLE_INLINE I32x16 MaddI8I8(U8x64 w, int32_t a) {
  const __m256i b = _mm256_set1_epi32(a);
  return {_mm256_maddubs_epi16(_mm256_abs_epi8(w.a), _mm256_sign_epi8(b, w.a)),
          _mm256_maddubs_epi16(_mm256_abs_epi8(w.b), _mm256_sign_epi8(b, w.b))};
}
NIBBLE_INLINE U8x64 FlipTopBit(U8x64 x) {
  const __m256i top = _mm256_set1_epi8(static_cast<char>(0x80));
  return {_mm256_xor_si256(x.a, top), _mm256_xor_si256(x.b, top)};
}
#define NIBBLE_DOT_FLIPPED 1
// |w| · (a, turned over where w < 0), w signed.
NIBBLE_INLINE I32x16 MaddFlipped(U8x64 w, int32_t a) {
  const __m256i b = _mm256_set1_epi32(a);
  const __m256i zero = _mm256_setzero_si256();
  return {
      _mm256_maddubs_epi16(_mm256_abs_epi8(w.a), _mm256_xor_si256(b, _mm256_cmpgt_epi8(zero, w.a))),
      _mm256_maddubs_epi16(_mm256_abs_epi8(w.b),
                           _mm256_xor_si256(b, _mm256_cmpgt_epi8(zero, w.b)))};
}
// −w where w < 0, else 0, in 16-bit pair sums.
NIBBLE_INLINE I32x16 NegativePairs(U8x64 w) {
  const __m256i one = _mm256_set1_epi8(1);
  const auto pairs = [&](__m256i v) {
    const __m256i negative = _mm256_cmpgt_epi8(_mm256_setzero_si256(), v);
    return _mm256_maddubs_epi16(_mm256_and_si256(_mm256_abs_epi8(v), negative), one);
  };
  return {pairs(w.a), pairs(w.b)};
}
constexpr int kTileTokens = 4;
constexpr int kFusedTokens = 4;
constexpr int kFusedLimit = 32;
#endif

// Register blocks (docs/performance.md): panels × tokens of the multiply from scratch, the most
// tokens of the kernel that unpacks in registers, and how many tokens use that kernel.
constexpr int kTilePanels = 1;
constexpr int kFloatTileTokens = 4;
// Of floats straight from the packed bytes: the most tokens of a multiply, and how many use it.
constexpr int kFusedFloatTokens = 1;
constexpr int kFusedFloatLimit = 4;

}  // namespace
}  // namespace nibble::NIBBLE_ISA_NS
