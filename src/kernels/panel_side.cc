#include "kernels/panel_side.h"

#include <cstring>

#include "format/small_float.h"

namespace nibble {
namespace {

constexpr int kF16ArrayBytes = 2 * kPanelRows;

uint16_t LoadF16(const uint8_t* array, int row) {
  uint16_t bits = 0;
  std::memcpy(&bits, array + 2 * row, sizeof bits);
  return bits;
}

int GetBits(uint8_t byte, int shift, int width) { return byte >> shift & ((1 << width) - 1); }

// Where the pieces of group g's six-bit numbers lie.
struct SixBit {
  int lo;        // byte of the low four bits, without the row
  int lo_shift;  // of the scale
  int hi;
  int hi_shift;
};
SixBit K6MinPlace(int g) { return {g * 16, 0, 128 + g % 4 * 16, g / 4 * 2}; }
SixBit K6SignedPlace(int g) { return {g % 8 * 16, g / 8 * 4, 128 + g % 4 * 16, g / 4 * 2}; }
SixBit Iq4XsPlace(int g) { return {g % 4 * 16, g / 4 * 4, 64 + g % 2 * 16, g / 2 * 2}; }

uint8_t GetSixBit(const uint8_t* bytes, int row, const SixBit& place) {
  return static_cast<uint8_t>(GetBits(bytes[place.lo + row], place.lo_shift, 4) |
                              GetBits(bytes[place.hi + row], place.hi_shift, 2) << 4);
}
// The min beside a K6Min scale: high nibble, and four bits further up.
SixBit MinPlace(SixBit scale) {
  scale.lo_shift += 4;
  scale.hi_shift += 4;
  return scale;
}

int Groups(SideKind kind) {
  switch (kind) {
    case SideKind::kK6Min:
    case SideKind::kIq4Xs:
      return 8;
    case SideKind::kUe4m3:
      return 4;
    case SideKind::kNone:
    case SideKind::kF16:
    case SideKind::kF16Min:
    case SideKind::kF16Zero:
    case SideKind::kE8M0:
      return 1;
    default:
      return 16;
  }
}

}  // namespace

RowSide LoadSide(SideKind kind, int row, const uint8_t* side) {
  RowSide out;
  if (kind == SideKind::kNone) return out;
  if (kind == SideKind::kE8M0 || kind == SideKind::kUe4m3) {
    for (int g = 0; g < Groups(kind); ++g) out.scales[g] = side[g * kPanelRows + row];
    return out;
  }
  out.d = LoadF16(side, row);
  const uint8_t* rest = side + kF16ArrayBytes;
  if (kind == SideKind::kF16Min || kind == SideKind::kK6Min || kind == SideKind::kK4Min) {
    out.m = LoadF16(rest, row);
    rest += kF16ArrayBytes;
  }
  if (kind == SideKind::kF16Zero) out.zero = rest[row];
  for (int g = 0; g < Groups(kind); ++g) {
    if (kind == SideKind::kK6Min) {
      out.scales[g] = GetSixBit(rest, row, K6MinPlace(g));
      out.mins[g] = GetSixBit(rest, row, MinPlace(K6MinPlace(g)));
    } else if (kind == SideKind::kK4Min) {
      out.scales[g] = rest[g * kPanelRows + row] & 15;
      out.mins[g] = rest[g * kPanelRows + row] >> 4;
    } else if (kind == SideKind::kI8) {
      out.scales[g] = rest[g * kPanelRows + row];
    } else if (kind == SideKind::kK6Signed) {
      out.scales[g] = GetSixBit(rest, row, K6SignedPlace(g));
    } else if (kind == SideKind::kIq4Xs) {
      out.scales[g] = GetSixBit(rest, row, Iq4XsPlace(g));
    }
  }
  return out;
}

float ScaleOf(SideKind kind, const RowSide& row_side, int g) {
  const float d = F16ToF32(row_side.d);
  switch (kind) {
    case SideKind::kNone:
      return 1.0f;
    case SideKind::kF16:
    case SideKind::kF16Min:
    case SideKind::kF16Zero:
      return d;
    case SideKind::kE8M0:
      return E8M0ToF32Half(row_side.scales[0]);
    case SideKind::kUe4m3:
      return UE4M3ToF32(row_side.scales[g]) * 0.5f;
    case SideKind::kK6Min:
    case SideKind::kK4Min:
      return d * static_cast<float>(row_side.scales[g]);
    case SideKind::kI8:
      return d * static_cast<float>(static_cast<int8_t>(row_side.scales[g]));
    case SideKind::kK6Signed:
    case SideKind::kIq4Xs:
      return d * static_cast<float>(row_side.scales[g] - 32);
  }
  return 0.0f;
}

float MinOf(SideKind kind, const RowSide& row_side, int g) {
  const float m = F16ToF32(row_side.m);
  return kind == SideKind::kF16Min ? m : -(m * static_cast<float>(row_side.mins[g]));
}

}  // namespace nibble
