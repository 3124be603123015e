#pragma once

#include <arm_neon.h>

#include <cstdint>

namespace nibble::NIBBLE_ISA_NS {
namespace {

using Reg = float32x4_t;
using Mask = uint32x4_t;
constexpr int kWidth = 4;
// Register block of attention: rows × registers of accumulators, within 32 registers.
constexpr int kTileRows = 4;
constexpr int kTileRegs = 4;
constexpr int kWideRegs = 2;  // of a tile of all eight rows

NIBBLE_INLINE Mask FirstN(int n) {
  constexpr uint32_t kLane[4] = {0, 1, 2, 3};
  return vcltq_u32(vld1q_u32(kLane), vdupq_n_u32(static_cast<uint32_t>(n)));
}

NIBBLE_INLINE Reg Set(float x) { return vdupq_n_f32(x); }
NIBBLE_INLINE Reg Load(const float* p) { return vld1q_f32(p); }
NIBBLE_INLINE Reg Load(const uint16_t* p) {  // f16
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
NIBBLE_INLINE Reg LoadN(const float* p, int n) {
  float copy[4] = {};
  for (int i = 0; i < n; ++i) copy[i] = p[i];
  return Load(copy);
}
NIBBLE_INLINE Reg LoadN(const uint16_t* p, int n) {
  uint16_t copy[4] = {};
  for (int i = 0; i < n; ++i) copy[i] = p[i];
  return Load(copy);
}
// E4M3 · 2^-8 by way of f16, whose exponent has one bit and a bias of 8 more.
NIBBLE_INLINE Reg Load(const Fp8* p) {
  uint32_t four = 0;
  __builtin_memcpy(&four, p, sizeof four);
  const uint16x8_t wide = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four)));
  const uint16x4_t codes = vshl_n_u16(vget_low_u16(wide), 8);
  const uint16x4_t magnitude = vand_u16(vshr_n_u16(codes, 1), vdup_n_u16(0x3f80));
  const uint16x4_t sign = vand_u16(codes, vdup_n_u16(0x8000));
  return vcvt_f32_f16(vreinterpret_f16_u16(vorr_u16(magnitude, sign)));
}
NIBBLE_INLINE Reg LoadN(const Fp8* p, int n) {
  Fp8 copy[4] = {};
  for (int i = 0; i < n; ++i) copy[i] = p[i];
  return Load(copy);
}
NIBBLE_INLINE void Store(float* p, Reg v) { vst1q_f32(p, v); }
NIBBLE_INLINE void StoreN(float* p, Reg v, int n) {
  float copy[4];
  Store(copy, v);
  for (int i = 0; i < n; ++i) p[i] = copy[i];
}
NIBBLE_INLINE void StoreHalf(uint16_t* p, Reg v) {
  vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v)));
}
NIBBLE_INLINE Reg KeepN(Reg v, int n) {
  return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(v), FirstN(n)));
}

NIBBLE_INLINE Reg Add(Reg a, Reg b) { return vaddq_f32(a, b); }
NIBBLE_INLINE Reg Sub(Reg a, Reg b) { return vsubq_f32(a, b); }
NIBBLE_INLINE Reg Mul(Reg a, Reg b) { return vmulq_f32(a, b); }
NIBBLE_INLINE Reg Div(Reg a, Reg b) { return vdivq_f32(a, b); }
NIBBLE_INLINE Reg Fma(Reg a, Reg b, Reg c) { return vfmaq_f32(c, a, b); }
// a > b ? a : b, so b where either is NaN.
NIBBLE_INLINE Reg Max(Reg a, Reg b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
// a < b ? a : b
NIBBLE_INLINE Reg Min(Reg a, Reg b) { return vbslq_f32(vcltq_f32(a, b), a, b); }

NIBBLE_INLINE Reg Negate(Reg a) { return vnegq_f32(a); }
NIBBLE_INLINE Reg Abs(Reg a) { return vabsq_f32(a); }
NIBBLE_INLINE Reg CopySign(Reg magnitude, Reg sign) {
  return vbslq_f32(vdupq_n_u32(0x80000000U), sign, magnitude);
}
NIBBLE_INLINE Mask Less(Reg a, Reg b) { return vcltq_f32(a, b); }
NIBBLE_INLINE Mask Equal(Reg a, Reg b) { return vceqq_f32(a, b); }
NIBBLE_INLINE Reg Select(Mask m, Reg yes, Reg no) { return vbslq_f32(m, yes, no); }
NIBBLE_INLINE bool AnyMore(Reg a, Reg b) { return vmaxvq_u32(vcgtq_f32(a, b)) != 0; }
NIBBLE_INLINE uint32_t BitsAtLeast(Reg a, Reg b) {
  constexpr uint32_t kBit[4] = {1, 2, 4, 8};
  return vaddvq_u32(vandq_u32(vcgeq_f32(a, b), vld1q_u32(kBit)));
}

// p · 2^n, where n stands in the low bits of t.
NIBBLE_INLINE Reg Scale2(Reg p, Reg t) {
  return vreinterpretq_f32_u32(
      vaddq_u32(vreinterpretq_u32_f32(p), vshlq_n_u32(vreinterpretq_u32_f32(t), 23)));
}
// 2^n
NIBBLE_INLINE Reg PowerOf2(Reg t) { return Scale2(Set(1.0F), t); }
// a < b ? 0 : x
NIBBLE_INLINE Reg KeepNotLess(Reg a, Reg b, Reg x) {
  return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(x), vcltq_f32(a, b)));
}
NIBBLE_INLINE float First(Reg a) { return vgetq_lane_f32(a, 0); }
NIBBLE_INLINE Reg SwapPairs(Reg a) { return vrev64q_f32(a); }

// The tree over the lanes of a register: i and i + 2, then 1.
NIBBLE_INLINE float TreeSum(Reg a) {
  const float32x2_t b = vadd_f32(vget_low_f32(a), vget_high_f32(a));
  return vget_lane_f32(b, 0) + vget_lane_f32(b, 1);
}
NIBBLE_INLINE float TreeMax(Reg a) { return vmaxvq_f32(a); }
// The largest lane of each of eight registers.
NIBBLE_INLINE void MaxOfEight(const Reg* a, float* to) {
  for (int i = 0; i < 8; i += 4) {
    Store(to + i, vpmaxq_f32(vpmaxq_f32(a[i], a[i + 1]), vpmaxq_f32(a[i + 2], a[i + 3])));
  }
}

}  // namespace
}  // namespace nibble::NIBBLE_ISA_NS
