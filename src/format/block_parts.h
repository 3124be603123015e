#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "format/format.h"

namespace nibble {

// A block of a GGUF type taken apart, for methods that choose scales and codes themselves:
//
//   w[e] = d · scales[g] · (codes[e] − zero) − min · mins[g],  g = e / group,
//
// and for iq4 types the table's entry in place of codes[e] − zero.
struct BlockShape {
  int elements;      // 32 or 256
  int group;         // elements that share scales[g] and mins[g]
  int largest_code;  // codes are 0 … this, q8_0's 1 … this
  int zero;
  // What scales[g] may be; one that is always 1 belongs to d.
  int lowest_scale;
  int largest_scale;
  int largest_min;  // mins[g]; 0: there are none. 1: the minimum is min itself, of either sign
  std::span<const int8_t> table;

  int groups() const { return elements / group; }
  bool IsAffine() const { return largest_min > 0; }
};
struct BlockParts {
  float d = 0;    // as f16 holds it
  float min = 0;  // as f16 holds it
  std::array<int8_t, 16> scales = {};
  std::array<uint8_t, 16> mins = {};
  std::array<uint8_t, 256> codes = {};
};

// Null for formats that are not made of such blocks (floats, fp4).
const BlockShape* BlockShapeOf(Format format);

// block: TraitsOf(format).block_bytes. Joining what was split gives the same bytes.
BlockParts SplitBlock(Format format, const std::byte* block);
void JoinBlock(Format format, const BlockParts& parts, std::byte* block);

}  // namespace nibble
