#pragma once

#include <cstdint>

#include "kernels/panel_layout.h"

namespace nibble {

// Scales of one row in one chunk, as the file has them: f16 bits, and one small number per scale
// group (six-bit signed ones without their −32).
struct RowSide {
  uint16_t d = 0;
  uint16_t m = 0;    // or dmin
  uint8_t zero = 0;  // kF16Zero
  uint8_t scales[16] = {};
  uint8_t mins[16] = {};
};

RowSide LoadSide(SideKind kind, int row, const uint8_t* side);

// The float scale of group g: a code's value times it, plus MinOf, is the weight. Exact.
float ScaleOf(SideKind kind, const RowSide& row_side, int g);
// m, or −dmin · mn.
float MinOf(SideKind kind, const RowSide& row_side, int g);

}  // namespace nibble
