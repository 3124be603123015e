#pragma once

#include <cstddef>
#include <cstdint>

#include "format/format.h"

namespace nibble {

// Kernel order of packed weights: the one description that packing, the scalar twin and every
// vector kernel share. Included by sources that are compiled per instruction set: everything here
// has internal linkage or is a constant.
//
// A matrix is panels of 16 output rows (the last one padded with zero codes and scales); a panel is
// one chunk per block of the format along the depth; a chunk is the scales of 16 rows ("side"),
// then their codes: in the order in which they are read, because the processor's own prefetcher
// follows one ascending stream (side last: one-token Q4_K at 0.85 of this rate on Zen 4). A chunk
// has exactly the bytes of 16 blocks of the file.
//
// Codes of 32 depths ("group32") are 8 steps of 4 depths; a step is 64 bytes [16 rows][4 depths],
// one AVX-512 register, two AVX2, four NEON. How steps are stored depends on the planes:
//   nibbles  4 × 64 B: vector v holds step v in its low and step v + 4 in its high nibbles
//   crumbs   2 × 64 B: vector v holds step 4v + i in bits 2i, 2i + 1
//   bits     1 × 64 B: step s in bit s
//   bytes    8 × 64 B
// Floats (F32, F16, BF16, FP8) have chunks of one depth: [16 rows].
enum class CodePlanes : uint8_t {
  kFloat,
  kNibble,
  kNibbleBit,    // code = nibble | bit << 4
  kNibbleCrumb,  // code = nibble | crumb << 4
  kCrumb,
  kCrumbBit,  // code = crumb | bit << 2
  kByte,      // unsigned; Q8_0 is stored xor 0x80, offset 128
};

// Which number a code stands for: code - zero, or an entry of a table.
enum class CodeTable : uint8_t { kLinear, kIq4, kE2M1 };

// Side of a chunk; r is the row, g the scale group. f16 arrays are little-endian bits.
enum class SideKind : uint8_t {
  kNone,
  kF16,       // d[16]
  kF16Min,    // d[16], m[16]
  kF16Zero,   // d[16], u8 z[16]: codes stand for code − z; one d and z for the whole chunk
  kE8M0,      // e[16]
  kUe4m3,     // e[4][16]
  kK6Min,     // d[16], dmin[16], lo[8][16] = sc & 15 | (mn & 15) << 4, hi[4][16]: of groups g and
              // g + 4 the top two bits, sc at bits 0 and 2, mn at bits 4 and 6
  kK4Min,     // d[16], dmin[16], sm[16][16] = sc | mn << 4
  kI8,        // d[16], i8 sc[16][16]
  kK6Signed,  // d[16], lo[8][16]: groups g (low nibble), g + 8; hi[4][16]: group g's top bits at
              // row g % 4, bits 2 (g / 4); scale = six bits - 32
  kIq4Xs,     // d[16], lo[4][16]: groups g, g + 4; hi[2][16]: row g % 2, bits 2 (g / 2); - 32
};

struct PanelLayout {
  CodePlanes planes;
  SideKind side;
  CodeTable table;
  int block;      // depths of a chunk
  int group;      // depths that share a scale: 16 or 32 (grouped formats: 32 of their group)
  int act_group;  // depths that share an activation scale under act=int8: 32, 256; 0: act=f32 only
  int log2_zero;  // the unsigned operand of the integer dot is value + 2^log2_zero; -1: value
  int chunk_bytes;

  constexpr bool has_min() const {
    return side == SideKind::kF16Min || side == SideKind::kK6Min || side == SideKind::kK4Min;
  }
  constexpr bool has_zero() const { return side == SideKind::kF16Zero; }
  constexpr int zero() const { return log2_zero < 0 ? 0 : 1 << log2_zero; }
  // Bytes of the codes of 32 depths.
  constexpr int group32_bytes() const {
    switch (planes) {
      case CodePlanes::kNibble:
        return 256;
      case CodePlanes::kNibbleBit:
        return 320;
      case CodePlanes::kNibbleCrumb:
        return 384;
      case CodePlanes::kCrumb:
        return 128;
      case CodePlanes::kCrumbBit:
        return 192;
      case CodePlanes::kByte:
        return 512;
      case CodePlanes::kFloat:
        return chunk_bytes * 32;
    }
    return 0;
  }
  // Bytes before the codes of a chunk.
  constexpr int side_bytes() const {
    return planes == CodePlanes::kFloat ? 0 : chunk_bytes - group32_bytes() * (block / 32);
  }
};

inline constexpr int kPanelRows = 16;

static constexpr PanelLayout PanelLayoutOf(Format format) {
  using P = CodePlanes;
  using S = SideKind;
  using T = CodeTable;
  switch (format) {
    case Format::kF32:
      return {P::kFloat, S::kNone, T::kLinear, 1, 1, 0, -1, 64};
    case Format::kF16:
    case Format::kBF16:
      return {P::kFloat, S::kNone, T::kLinear, 1, 1, 0, -1, 32};
    case Format::kF8E4M3:
    case Format::kF8E5M2:
      return {P::kFloat, S::kNone, T::kLinear, 1, 1, 0, -1, 16};
    case Format::kQ4_0:
      return {P::kNibble, S::kF16, T::kLinear, 32, 32, 32, 3, 288};
    case Format::kQ4_1:
      return {P::kNibble, S::kF16Min, T::kLinear, 32, 32, 32, -1, 320};
    case Format::kQ5_0:
      return {P::kNibbleBit, S::kF16, T::kLinear, 32, 32, 32, 4, 352};
    case Format::kQ5_1:
      return {P::kNibbleBit, S::kF16Min, T::kLinear, 32, 32, 32, -1, 384};
    case Format::kQ8_0:
      return {P::kByte, S::kF16, T::kLinear, 32, 32, 32, 7, 544};
    case Format::kQ2K:
      return {P::kCrumb, S::kK4Min, T::kLinear, 256, 16, 256, -1, 1344};
    case Format::kQ3K:
      return {P::kCrumbBit, S::kK6Signed, T::kLinear, 256, 16, 256, 2, 1760};
    case Format::kQ4K:
      return {P::kNibble, S::kK6Min, T::kLinear, 256, 32, 256, -1, 2304};
    case Format::kQ5K:
      return {P::kNibbleBit, S::kK6Min, T::kLinear, 256, 32, 256, -1, 2816};
    case Format::kQ6K:
      return {P::kNibbleCrumb, S::kI8, T::kLinear, 256, 16, 256, 5, 3360};
    case Format::kIq4Nl:
      return {P::kNibble, S::kF16, T::kIq4, 32, 32, 32, 7, 288};
    case Format::kIq4Xs:
      return {P::kNibble, S::kIq4Xs, T::kIq4, 256, 32, 256, 7, 2176};
    case Format::kMxfp4:
      return {P::kNibble, S::kE8M0, T::kE2M1, 32, 32, 32, 4, 272};
    case Format::kNvfp4:
      return {P::kNibble, S::kUe4m3, T::kE2M1, 64, 16, 32, 4, 576};
    case Format::kW4G32:
      return {P::kNibble, S::kF16Zero, T::kLinear, 32, 32, 32, -1, 304};
    case Format::kW4G64:
      return {P::kNibble, S::kF16Zero, T::kLinear, 64, 32, 32, -1, 560};
    case Format::kW4G128:
      return {P::kNibble, S::kF16Zero, T::kLinear, 128, 32, 32, -1, 1072};
    case Format::kW8G32:
      return {P::kByte, S::kF16Zero, T::kLinear, 32, 32, 32, -1, 560};
    case Format::kW8G64:
      return {P::kByte, S::kF16Zero, T::kLinear, 64, 32, 32, -1, 1072};
    case Format::kW8G128:
      return {P::kByte, S::kF16Zero, T::kLinear, 128, 32, 32, -1, 2096};
  }
  return {};
}

// Values of table codes plus 2^log2_zero: what the unsigned operand holds.
static constexpr uint8_t kIq4Unsigned[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                             129, 141, 153, 166, 181, 197, 217, 241};
static constexpr uint8_t kE2M1Unsigned[16] = {16, 17, 18, 19, 20, 22, 24, 28,
                                              16, 15, 14, 13, 12, 10, 8,  4};

}  // namespace nibble
