#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

namespace nibble::NIBBLE_ISA_NS {
namespace {

struct U8x64 {
  uint8x16_t a, b, c, d;
};
struct I32x16 {
  int32x4_t a, b, c, d;
};
struct F32x16 {
  float32x4_t a, b, c, d;
};

NIBBLE_INLINE U8x64 LoadU8(const uint8_t* p) {
  return {vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32), vld1q_u8(p + 48)};
}
NIBBLE_INLINE void StoreU8(uint8_t* p, U8x64 x) {
  vst1q_u8(p, x.a);
  vst1q_u8(p + 16, x.b);
  vst1q_u8(p + 32, x.c);
  vst1q_u8(p + 48, x.d);
}
NIBBLE_INLINE U8x64 And(U8x64 x, int mask) {
  const uint8x16_t m = vdupq_n_u8(static_cast<uint8_t>(mask));
  return {vandq_u8(x.a, m), vandq_u8(x.b, m), vandq_u8(x.c, m), vandq_u8(x.d, m)};
}
NIBBLE_INLINE U8x64 Or(U8x64 x, U8x64 y) {
  return {vorrq_u8(x.a, y.a), vorrq_u8(x.b, y.b), vorrq_u8(x.c, y.c), vorrq_u8(x.d, y.d)};
}
NIBBLE_INLINE U8x64 ShiftLeft(U8x64 x, int n) {
  const int8x16_t by = vdupq_n_s8(static_cast<int8_t>(n));
  return {vshlq_u8(x.a, by), vshlq_u8(x.b, by), vshlq_u8(x.c, by), vshlq_u8(x.d, by)};
}
NIBBLE_INLINE U8x64 ShiftRight(U8x64 x, int n) { return ShiftLeft(x, -n); }
// table[x] for x in 0 … 15.
NIBBLE_INLINE U8x64 Lookup(const uint8_t* table, U8x64 x) {
  const uint8x16_t t = vld1q_u8(table);
  return {vqtbl1q_u8(t, x.a), vqtbl1q_u8(t, x.b), vqtbl1q_u8(t, x.c), vqtbl1q_u8(t, x.d)};
}

NIBBLE_INLINE F32x16 SplatF(float x) {
  const float32x4_t v = vdupq_n_f32(x);
  return {v, v, v, v};
}
NIBBLE_INLINE F32x16 ZeroF() { return SplatF(0.0f); }
NIBBLE_INLINE F32x16 LoadF(const float* p) {
  return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}
NIBBLE_INLINE void StoreF(float* p, F32x16 x) {
  vst1q_f32(p, x.a);
  vst1q_f32(p + 4, x.b);
  vst1q_f32(p + 8, x.c);
  vst1q_f32(p + 12, x.d);
}
NIBBLE_INLINE F32x16 Add(F32x16 x, F32x16 y) {
  return {vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b), vaddq_f32(x.c, y.c), vaddq_f32(x.d, y.d)};
}
NIBBLE_INLINE F32x16 Mul(F32x16 x, F32x16 y) {
  return {vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b), vmulq_f32(x.c, y.c), vmulq_f32(x.d, y.d)};
}
NIBBLE_INLINE F32x16 Fma(F32x16 x, F32x16 y, F32x16 z) {
  return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b), vfmaq_f32(z.c, x.c, y.c),
          vfmaq_f32(z.d, x.d, y.d)};
}
NIBBLE_INLINE F32x16 Neg(F32x16 x) {
  return {vnegq_f32(x.a), vnegq_f32(x.b), vnegq_f32(x.c), vnegq_f32(x.d)};
}
NIBBLE_INLINE F32x16 BitsF(I32x16 x) {
  return {vreinterpretq_f32_s32(x.a), vreinterpretq_f32_s32(x.b), vreinterpretq_f32_s32(x.c),
          vreinterpretq_f32_s32(x.d)};
}
NIBBLE_INLINE I32x16 AsBits(F32x16 x) {
  return {vreinterpretq_s32_f32(x.a), vreinterpretq_s32_f32(x.b), vreinterpretq_s32_f32(x.c),
          vreinterpretq_s32_f32(x.d)};
}

NIBBLE_INLINE I32x16 LoadI(const int32_t* p) {
  return {vld1q_s32(p), vld1q_s32(p + 4), vld1q_s32(p + 8), vld1q_s32(p + 12)};
}
NIBBLE_INLINE void StoreI(int32_t* p, I32x16 x) {
  vst1q_s32(p, x.a);
  vst1q_s32(p + 4, x.b);
  vst1q_s32(p + 8, x.c);
  vst1q_s32(p + 12, x.d);
}
NIBBLE_INLINE I32x16 SplatI(int32_t x) {
  const int32x4_t v = vdupq_n_s32(x);
  return {v, v, v, v};
}
NIBBLE_INLINE I32x16 ZeroI() { return SplatI(0); }
NIBBLE_INLINE I32x16 MaxI(I32x16 x, I32x16 y) {
  return {vmaxq_s32(x.a, y.a), vmaxq_s32(x.b, y.b), vmaxq_s32(x.c, y.c), vmaxq_s32(x.d, y.d)};
}
NIBBLE_INLINE int32_t LargestOf(I32x16 x) {
  return vmaxvq_s32(vmaxq_s32(vmaxq_s32(x.a, x.b), vmaxq_s32(x.c, x.d)));
}
// Stores the low bytes of the lanes, four each `stride` bytes, and returns their sum; the lanes are
// within ±127.
NIBBLE_INLINE int32_t PutCodes(I32x16 x, ptrdiff_t stride, int8_t* to) {
  const int16x8_t low = vcombine_s16(vmovn_s32(x.a), vmovn_s32(x.b));
  const int16x8_t high = vcombine_s16(vmovn_s32(x.c), vmovn_s32(x.d));
  const int8x16_t bytes = vcombine_s8(vmovn_s16(low), vmovn_s16(high));
  int8_t in_order[16];
  vst1q_s8(in_order, bytes);
  for (int i = 0; i < 4; ++i) __builtin_memcpy(to + i * stride, in_order + 4 * i, 4);
  return vaddlvq_s8(bytes);
}
NIBBLE_INLINE I32x16 AddI(I32x16 x, I32x16 y) {
  return {vaddq_s32(x.a, y.a), vaddq_s32(x.b, y.b), vaddq_s32(x.c, y.c), vaddq_s32(x.d, y.d)};
}
NIBBLE_INLINE I32x16 SubI(I32x16 x, I32x16 y) {
  return {vsubq_s32(x.a, y.a), vsubq_s32(x.b, y.b), vsubq_s32(x.c, y.c), vsubq_s32(x.d, y.d)};
}
NIBBLE_INLINE I32x16 AndI(I32x16 x, I32x16 y) {
  return {vandq_s32(x.a, y.a), vandq_s32(x.b, y.b), vandq_s32(x.c, y.c), vandq_s32(x.d, y.d)};
}
NIBBLE_INLINE I32x16 OrI(I32x16 x, I32x16 y) {
  return {vorrq_s32(x.a, y.a), vorrq_s32(x.b, y.b), vorrq_s32(x.c, y.c), vorrq_s32(x.d, y.d)};
}
NIBBLE_INLINE I32x16 ShiftLeftI(I32x16 x, int n) {
  const int32x4_t by = vdupq_n_s32(n);
  return {vshlq_s32(x.a, by), vshlq_s32(x.b, by), vshlq_s32(x.c, by), vshlq_s32(x.d, by)};
}
NIBBLE_INLINE int32x4_t ShiftRightQ(int32x4_t x, int n) {
  return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(x), vdupq_n_s32(-n)));
}
NIBBLE_INLINE I32x16 ShiftRightI(I32x16 x, int n) {
  return {ShiftRightQ(x.a, n), ShiftRightQ(x.b, n), ShiftRightQ(x.c, n), ShiftRightQ(x.d, n)};
}
// x == y ? yes : no
NIBBLE_INLINE I32x16 SelectEqual(I32x16 x, I32x16 y, I32x16 yes, I32x16 no) {
  return {vbslq_s32(vceqq_s32(x.a, y.a), yes.a, no.a), vbslq_s32(vceqq_s32(x.b, y.b), yes.b, no.b),
          vbslq_s32(vceqq_s32(x.c, y.c), yes.c, no.c), vbslq_s32(vceqq_s32(x.d, y.d), yes.d, no.d)};
}
NIBBLE_INLINE F32x16 ToFloat(I32x16 x) {
  return {vcvtq_f32_s32(x.a), vcvtq_f32_s32(x.b), vcvtq_f32_s32(x.c), vcvtq_f32_s32(x.d)};
}
NIBBLE_INLINE I32x16 WidenU16(const uint8_t* p) {
  const uint16x8_t low = vreinterpretq_u16_u8(vld1q_u8(p));
  const uint16x8_t high = vreinterpretq_u16_u8(vld1q_u8(p + 16));
  return {vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))),
          vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(low))),
          vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))),
          vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(high)))};
}
NIBBLE_INLINE I32x16 WidenU8(const uint8_t* p) {
  const uint8x16_t v = vld1q_u8(p);
  const uint16x8_t low = vmovl_u8(vget_low_u8(v));
  const uint16x8_t high = vmovl_u8(vget_high_u8(v));
  return {vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))),
          vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(low))),
          vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))),
          vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(high)))};
}
NIBBLE_INLINE I32x16 WidenI8(const uint8_t* p) {
  const int8x16_t v = vreinterpretq_s8_u8(vld1q_u8(p));
  const int16x8_t low = vmovl_s8(vget_low_s8(v));
  const int16x8_t high = vmovl_s8(vget_high_s8(v));
  return {vmovl_s16(vget_low_s16(low)), vmovl_s16(vget_high_s16(low)),
          vmovl_s16(vget_low_s16(high)), vmovl_s16(vget_high_s16(high))};
}
NIBBLE_INLINE F32x16 FromHalves(uint16x8_t first, uint16x8_t second) {
  const float16x8_t low = vreinterpretq_f16_u16(first);
  const float16x8_t high = vreinterpretq_f16_u16(second);
  return {vcvt_f32_f16(vget_low_f16(low)), vcvt_f32_f16(vget_high_f16(low)),
          vcvt_f32_f16(vget_low_f16(high)), vcvt_f32_f16(vget_high_f16(high))};
}
NIBBLE_INLINE F32x16 LoadF16(const uint8_t* p) {
  return FromHalves(vreinterpretq_u16_u8(vld1q_u8(p)), vreinterpretq_u16_u8(vld1q_u8(p + 16)));
}
// lanes_x86.h tells how.
NIBBLE_INLINE F32x16 LoadE5M2(const uint8_t* p) {
  const uint8x16_t codes = vld1q_u8(p);
  return FromHalves(vshlq_n_u16(vmovl_u8(vget_low_u8(codes)), 8),
                    vshlq_n_u16(vmovl_u8(vget_high_u8(codes)), 8));
}
NIBBLE_INLINE uint16x8_t HalvesOfE4M3(int8x8_t codes) {
  const uint16x8_t moved = vshlq_n_u16(vreinterpretq_u16_s16(vmovl_s8(codes)), 7);
  const uint16x8_t most = vdupq_n_u16(0x3f80);
  const uint16x8_t nan = vceqq_u16(vandq_u16(moved, most), most);
  return vorrq_u16(vandq_u16(moved, vdupq_n_u16(0xbfff)), nan);
}
NIBBLE_INLINE F32x16 LoadE4M3(const uint8_t* p) {
  const int8x16_t codes = vreinterpretq_s8_u8(vld1q_u8(p));
  return Mul(FromHalves(HalvesOfE4M3(vget_low_s8(codes)), HalvesOfE4M3(vget_high_s8(codes))),
             SplatF(256));
}
NIBBLE_INLINE I32x16 AsI32(U8x64 x) {
  return {vreinterpretq_s32_u8(x.a), vreinterpretq_s32_u8(x.b), vreinterpretq_s32_u8(x.c),
          vreinterpretq_s32_u8(x.d)};
}

// acc + Σ of the two i16 products of each lane.
NIBBLE_INLINE int32x4_t MaddPairsQ(int32x4_t acc, int32x4_t x, int32x4_t y) {
  const int16x8_t u = vreinterpretq_s16_s32(x);
  const int16x8_t v = vreinterpretq_s16_s32(y);
  return vaddq_s32(acc,
                   vpaddq_s32(vmull_s16(vget_low_s16(u), vget_low_s16(v)), vmull_high_s16(u, v)));
}
NIBBLE_INLINE I32x16 MaddPairs(I32x16 acc, I32x16 x, I32x16 y) {
  return {MaddPairsQ(acc.a, x.a, y.a), MaddPairsQ(acc.b, x.b, y.b), MaddPairsQ(acc.c, x.c, y.c),
          MaddPairsQ(acc.d, x.d, y.d)};
}

// Steps of the integer dot, signed by signed; see kernels/simd/int_dot.h.
#define NIBBLE_DOT_SIGNED 1
NIBBLE_INLINE int8x16_t AsI8(uint8x16_t x) { return vreinterpretq_s8_u8(x); }
NIBBLE_INLINE I32x16 DotI8I8(I32x16 acc, U8x64 w, int32_t a) {
  const int8x16_t b = vreinterpretq_s8_s32(vdupq_n_s32(a));
  return {vdotq_s32(acc.a, AsI8(w.a), b), vdotq_s32(acc.b, AsI8(w.b), b),
          vdotq_s32(acc.c, AsI8(w.c), b), vdotq_s32(acc.d, AsI8(w.d), b)};
}
NIBBLE_INLINE U8x64 FlipTopBit(U8x64 x) {
  const uint8x16_t top = vdupq_n_u8(0x80);
  return {veorq_u8(x.a, top), veorq_u8(x.b, top), veorq_u8(x.c, top), veorq_u8(x.d, top)};
}

// Register blocks: panels × tokens of the multiply from scratch, the most tokens of the kernel
// that unpacks in registers, and how many tokens use that kernel.
constexpr int kTilePanels = 1;
constexpr int kTileTokens = 4;
constexpr int kFusedTokens = 4;
constexpr int kFusedLimit = 8;
constexpr int kFloatTileTokens = 4;
// Of floats straight from the packed bytes: the most tokens of a multiply, and how many use it.
constexpr int kFusedFloatTokens = 1;
constexpr int kFusedFloatLimit = 4;

}  // namespace
}  // namespace nibble::NIBBLE_ISA_NS
