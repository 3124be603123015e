#pragma once

#include <cstdint>

#include "kernels/panel_layout.h"
#include "kernels/simd/lanes.h"

// Reading packed chunks into lanes: the vector side of kernels/panel_layout.h.
namespace nibble::NIBBLE_ISA_NS {
namespace {

// Bits [2i, 2i + 2) of each byte, moved to bits [to, to + 2).
NIBBLE_INLINE U8x64 Crumb(U8x64 v, int i, int to) {
  const int shift = to - 2 * i;
  const U8x64 moved = shift > 0 ? ShiftLeft(v, shift) : shift < 0 ? ShiftRight(v, -shift) : v;
  return And(moved, 3 << to);
}
// Bit s of each byte, moved to bit `to`.
NIBBLE_INLINE U8x64 Bit(U8x64 v, int s, int to) {
  const int shift = to - s;
  const U8x64 moved = shift > 0 ? ShiftLeft(v, shift) : shift < 0 ? ShiftRight(v, -shift) : v;
  return And(moved, 1 << to);
}
NIBBLE_INLINE U8x64 Nibble(const uint8_t* codes, int s) {
  const U8x64 v = LoadU8(codes + (s & 3) * 64);
  return And(s < 4 ? v : ShiftRight(v, 4), 15);
}

// The unsigned operands of step s = 0 … 7 of 32 depths. s must be a constant after unrolling.
template <CodePlanes kPlanes, CodeTable kTable>
NIBBLE_INLINE U8x64 UnpackStep(const uint8_t* codes, int s) {
  if constexpr (kPlanes == CodePlanes::kNibble) {
    const U8x64 nibble = Nibble(codes, s);
    if constexpr (kTable == CodeTable::kIq4) return Lookup(kIq4Unsigned, nibble);
    if constexpr (kTable == CodeTable::kE2M1) return Lookup(kE2M1Unsigned, nibble);
    return nibble;
  } else if constexpr (kPlanes == CodePlanes::kNibbleBit) {
    return Or(Nibble(codes, s), Bit(LoadU8(codes + 256), s, 4));
  } else if constexpr (kPlanes == CodePlanes::kNibbleCrumb) {
    return Or(Nibble(codes, s), Crumb(LoadU8(codes + 256 + s / 4 * 64), s % 4, 4));
  } else if constexpr (kPlanes == CodePlanes::kCrumb) {
    return Crumb(LoadU8(codes + s / 4 * 64), s % 4, 0);
  } else if constexpr (kPlanes == CodePlanes::kCrumbBit) {
    return Or(Crumb(LoadU8(codes + s / 4 * 64), s % 4, 0), Bit(LoadU8(codes + 128), s, 2));
  } else {
    return LoadU8(codes + s * 64);
  }
}

// Half of 2^(e − 127), exactly; e < 2 gives a denormal of (e + 1) 2^21 units in
// the last place, which is less than (e − 1) 2^23 for all other e.
NIBBLE_INLINE F32x16 FloatOfE8M0Half(const uint8_t* e) {
  const I32x16 code = WidenU8(e);
  const I32x16 normal = ShiftLeftI(SubI(code, SplatI(1)), 23);
  const I32x16 denormal = ShiftLeftI(AddI(code, SplatI(1)), 21);
  return BitsF(MaxI(normal, denormal));
}
// Half of an unsigned E4M3. The seven bits above 20 read as a float are the value · 2^-120, the
// subnormals too.
NIBBLE_INLINE F32x16 FloatOfUe4m3Half(const uint8_t* codes) {
  const I32x16 code = WidenU8(codes);
  const I32x16 bits = ShiftLeftI(AndI(code, SplatI(0x7f)), 20);
  const I32x16 known = SelectEqual(code, SplatI(0x7f), SplatI(0), bits);
  return Mul(BitsF(known), SplatF(0x1p119f));
}

// Scales of one chunk. Scale(g): of scale group g of the chunk, in floats; exact products.
template <SideKind kKind>
struct Side;

template <>
struct Side<SideKind::kF16> {
  const uint8_t* side;
  explicit Side(const uint8_t* s) : side(s) {}
  F32x16 Scale(int) const { return LoadF16(side); }
};

template <>
struct Side<SideKind::kF16Min> {
  const uint8_t* side;
  explicit Side(const uint8_t* s) : side(s) {}
  F32x16 Scale(int) const { return LoadF16(side); }
  F32x16 Min() const { return LoadF16(side + 32); }
};

template <>
struct Side<SideKind::kF16Zero> {
  const uint8_t* side;
  explicit Side(const uint8_t* s) : side(s) {}
  F32x16 Scale(int) const { return LoadF16(side); }
  I32x16 Zero() const { return WidenU8(side + 32); }
};

template <>
struct Side<SideKind::kE8M0> {
  const uint8_t* side;
  explicit Side(const uint8_t* s) : side(s) {}
  F32x16 Scale(int) const { return FloatOfE8M0Half(side); }
};

template <>
struct Side<SideKind::kUe4m3> {
  const uint8_t* side;
  explicit Side(const uint8_t* s) : side(s) {}
  F32x16 Scale(int g) const { return FloatOfUe4m3Half(side + 16 * g); }
};

// Two neighbouring groups' mins as i16 pairs, and −dmin, from bytes decoded before.
template <int kGroups>
struct MinBytes {
  alignas(64) uint8_t scales[kGroups * 16];
  alignas(64) uint8_t mins[kGroups * 16];
  F32x16 d;
  F32x16 neg_dmin;

  F32x16 Scale(int g) const { return Mul(ToFloat(WidenU8(scales + 16 * g)), d); }
  I32x16 MinPairs(int j) const {
    return OrI(WidenU8(mins + 32 * j), ShiftLeftI(WidenU8(mins + 32 * j + 16), 16));
  }
};

template <>
struct Side<SideKind::kK6Min> : MinBytes<8> {
  explicit Side(const uint8_t* s) {
    d = LoadF16(s);
    neg_dmin = Neg(LoadF16(s + 32));
    const U8x64 lo0 = LoadU8(s + 64);
    const U8x64 lo1 = LoadU8(s + 128);
    const U8x64 hi = LoadU8(s + 192);
    StoreU8(scales, Or(And(lo0, 15), And(ShiftLeft(hi, 4), 0x30)));
    StoreU8(scales + 64, Or(And(lo1, 15), And(ShiftLeft(hi, 2), 0x30)));
    StoreU8(mins, Or(And(ShiftRight(lo0, 4), 15), And(hi, 0x30)));
    StoreU8(mins + 64, Or(And(ShiftRight(lo1, 4), 15), And(ShiftRight(hi, 2), 0x30)));
  }
};

template <>
struct Side<SideKind::kK4Min> : MinBytes<16> {
  explicit Side(const uint8_t* s) {
    d = LoadF16(s);
    neg_dmin = Neg(LoadF16(s + 32));
    for (int i = 0; i < 256; i += 64) {
      const U8x64 both = LoadU8(s + 64 + i);
      StoreU8(scales + i, And(both, 15));
      StoreU8(mins + i, And(ShiftRight(both, 4), 15));
    }
  }
};

template <>
struct Side<SideKind::kI8> {
  const uint8_t* scales;
  F32x16 d;
  explicit Side(const uint8_t* s) : scales(s + 32), d(LoadF16(s)) {}
  F32x16 Scale(int g) const { return Mul(ToFloat(WidenI8(scales + 16 * g)), d); }
};

template <>
struct Side<SideKind::kK6Signed> {
  alignas(64) uint8_t scales[256];  // plus 32
  F32x16 d;
  explicit Side(const uint8_t* s) : d(LoadF16(s)) {
    const U8x64 lo0 = LoadU8(s + 32);
    const U8x64 lo1 = LoadU8(s + 96);
    const U8x64 hi = LoadU8(s + 160);
    StoreU8(scales, Or(And(lo0, 15), And(ShiftLeft(hi, 4), 0x30)));
    StoreU8(scales + 64, Or(And(lo1, 15), And(ShiftLeft(hi, 2), 0x30)));
    StoreU8(scales + 128, Or(And(ShiftRight(lo0, 4), 15), And(hi, 0x30)));
    StoreU8(scales + 192, Or(And(ShiftRight(lo1, 4), 15), And(ShiftRight(hi, 2), 0x30)));
  }
  F32x16 Scale(int g) const { return Mul(ToFloat(SubI(WidenU8(scales + 16 * g), SplatI(32))), d); }
};

template <>
struct Side<SideKind::kIq4Xs> {
  const uint8_t* lo;
  const uint8_t* hi;
  F32x16 d;
  explicit Side(const uint8_t* s) : lo(s + 32), hi(s + 96), d(LoadF16(s)) {}
  F32x16 Scale(int g) const {
    const I32x16 low = AndI(ShiftRightI(WidenU8(lo + g % 4 * 16), g / 4 * 4), SplatI(15));
    const I32x16 high = AndI(ShiftRightI(WidenU8(hi + g % 2 * 16), g / 2 * 2), SplatI(3));
    return Mul(ToFloat(SubI(OrI(low, ShiftLeftI(high, 4)), SplatI(32))), d);
  }
};

}  // namespace
}  // namespace nibble::NIBBLE_ISA_NS
