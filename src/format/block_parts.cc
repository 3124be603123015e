#include "format/block_parts.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "base/check.h"
#include "format/iq4.h"
#include "format/kquants.h"
#include "format/legacy_quants.h"
#include "format/small_float.h"

namespace nibble {
namespace {

constexpr uint16_t kSignOfF16 = 0x8000;

template <class Block>
Block BlockAt(const std::byte* src) {
  Block block;
  std::memcpy(&block, src, sizeof block);
  return block;
}

// One overload pair a block: Split fills what the block has, Join all of its bytes.

void SetAlone(float d, BlockParts& parts) {
  parts.d = d;
  parts.scales[0] = 1;
}
// y = d · code + m
void SetAlone(float d, uint16_t m, BlockParts& parts) {
  SetAlone(d, parts);
  parts.min = F16ToF32(m ^ kSignOfF16);
  parts.mins[0] = 1;
}
uint16_t Negated(float min) { return F32ToF16(min) ^ kSignOfF16; }

void Split(const BlockQ4_0& block, BlockParts& parts) {
  SetAlone(F16ToF32(block.d), parts);
  CodesOfNibbles(block.qs, parts.codes.data());
}
void Join(const BlockParts& parts, BlockQ4_0& block) {
  block.d = F32ToF16(parts.d);
  PackNibbles(parts.codes.data(), block.qs);
}

void Split(const BlockQ4_1& block, BlockParts& parts) {
  SetAlone(F16ToF32(block.d), block.m, parts);
  CodesOfNibbles(block.qs, parts.codes.data());
}
void Join(const BlockParts& parts, BlockQ4_1& block) {
  block.d = F32ToF16(parts.d);
  block.m = Negated(parts.min);
  PackNibbles(parts.codes.data(), block.qs);
}

void Split(const BlockQ5_0& block, BlockParts& parts) {
  SetAlone(F16ToF32(block.d), parts);
  CodesOfNibblesAndHigh(block.qs, block.qh, parts.codes.data());
}
void Join(const BlockParts& parts, BlockQ5_0& block) {
  block.d = F32ToF16(parts.d);
  PackNibbles(parts.codes.data(), block.qs);
  PackHighBits(parts.codes.data(), block.qh);
}

void Split(const BlockQ5_1& block, BlockParts& parts) {
  SetAlone(F16ToF32(block.d), block.m, parts);
  CodesOfNibblesAndHigh(block.qs, block.qh, parts.codes.data());
}
void Join(const BlockParts& parts, BlockQ5_1& block) {
  block.d = F32ToF16(parts.d);
  block.m = Negated(parts.min);
  PackNibbles(parts.codes.data(), block.qs);
  PackHighBits(parts.codes.data(), block.qh);
}

void Split(const BlockQ8_0& block, BlockParts& parts) {
  SetAlone(F16ToF32(block.d), parts);
  for (size_t e = 0; e < 32; ++e) parts.codes[e] = static_cast<uint8_t>(block.qs[e] + 128);
}
void Join(const BlockParts& parts, BlockQ8_0& block) {
  block.d = F32ToF16(parts.d);
  for (size_t e = 0; e < 32; ++e) block.qs[e] = static_cast<int8_t>(parts.codes[e] - 128);
}

void Split(const BlockIq4Nl& block, BlockParts& parts) {
  SetAlone(F16ToF32(block.d), parts);
  CodesOfNibbles(block.qs, parts.codes.data());
}
void Join(const BlockParts& parts, BlockIq4Nl& block) {
  block.d = F32ToF16(parts.d);
  PackNibbles(parts.codes.data(), block.qs);
}

void Split(const BlockIq4Xs& block, BlockParts& parts) {
  parts.d = F16ToF32(block.d);
  for (int g = 0; g < 8; ++g) {
    parts.scales[static_cast<size_t>(g)] = static_cast<int8_t>(Iq4XsScale(block, g));
    CodesOfNibbles(block.qs + 16 * g, parts.codes.data() + 32 * g);
  }
}
void Join(const BlockParts& parts, BlockIq4Xs& block) {
  block.d = F32ToF16(parts.d);
  for (int g = 0; g < 8; ++g) {
    PutIq4XsScale(g, parts.scales[static_cast<size_t>(g)], block);
    PackNibbles(parts.codes.data() + 32 * g, block.qs + 16 * g);
  }
}

void Split(const BlockQ2K& block, BlockParts& parts) {
  parts.d = F16ToF32(block.d);
  parts.min = F16ToF32(block.dmin);
  for (size_t g = 0; g < 16; ++g) {
    parts.scales[g] = static_cast<int8_t>(block.scales[g] & 15);
    parts.mins[g] = static_cast<uint8_t>(block.scales[g] >> 4);
  }
  CodesOf(block, parts.codes.data());
}
void Join(const BlockParts& parts, BlockQ2K& block) {
  block.d = F32ToF16(parts.d);
  block.dmin = F32ToF16(parts.min);
  for (size_t g = 0; g < 16; ++g) {
    block.scales[g] = static_cast<uint8_t>(parts.scales[g] | (parts.mins[g] << 4));
  }
  PutCodes(parts.codes.data(), block);
}

void Split(const BlockQ3K& block, BlockParts& parts) {
  parts.d = F16ToF32(block.d);
  for (int g = 0; g < 16; ++g) {
    parts.scales[static_cast<size_t>(g)] = static_cast<int8_t>(Q3KScale(block.scales, g));
  }
  CodesOf(block, parts.codes.data());
}
void Join(const BlockParts& parts, BlockQ3K& block) {
  block.d = F32ToF16(parts.d);
  for (int g = 0; g < 16; ++g) {
    PutQ3KScale(g, parts.scales[static_cast<size_t>(g)], block.scales);
  }
  PutCodes(parts.codes.data(), block);
}

template <class Block>
void SplitScaleMin(const Block& block, BlockParts& parts) {
  parts.d = F16ToF32(block.d);
  parts.min = F16ToF32(block.dmin);
  for (int g = 0; g < 8; ++g) {
    const ScaleMin group = ScaleMinOf(block.scales, g);
    parts.scales[static_cast<size_t>(g)] = static_cast<int8_t>(group.scale);
    parts.mins[static_cast<size_t>(g)] = group.min;
  }
  CodesOf(block, parts.codes.data());
}
template <class Block>
void JoinScaleMin(const BlockParts& parts, Block& block) {
  block.d = F32ToF16(parts.d);
  block.dmin = F32ToF16(parts.min);
  for (int g = 0; g < 8; ++g) {
    const auto at = static_cast<size_t>(g);
    PutScaleMin(g, {static_cast<uint8_t>(parts.scales[at]), parts.mins[at]}, block.scales);
  }
  PutCodes(parts.codes.data(), block);
}
void Split(const BlockQ4K& block, BlockParts& parts) { SplitScaleMin(block, parts); }
void Join(const BlockParts& parts, BlockQ4K& block) { JoinScaleMin(parts, block); }
void Split(const BlockQ5K& block, BlockParts& parts) { SplitScaleMin(block, parts); }
void Join(const BlockParts& parts, BlockQ5K& block) { JoinScaleMin(parts, block); }

void Split(const BlockQ6K& block, BlockParts& parts) {
  parts.d = F16ToF32(block.d);
  std::copy_n(block.scales, 16, parts.scales.begin());
  CodesOf(block, parts.codes.data());
}
void Join(const BlockParts& parts, BlockQ6K& block) {
  block.d = F32ToF16(parts.d);
  std::copy_n(parts.scales.begin(), 16, block.scales);
  PutCodes(parts.codes.data(), block);
}

// Calls fn with an empty block of the format; false when it has none.
template <class Fn>
bool WithBlockOf(Format format, Fn fn) {
  switch (format) {
    case Format::kQ4_0:
      return fn(BlockQ4_0{}), true;
    case Format::kQ4_1:
      return fn(BlockQ4_1{}), true;
    case Format::kQ5_0:
      return fn(BlockQ5_0{}), true;
    case Format::kQ5_1:
      return fn(BlockQ5_1{}), true;
    case Format::kQ8_0:
      return fn(BlockQ8_0{}), true;
    case Format::kQ2K:
      return fn(BlockQ2K{}), true;
    case Format::kQ3K:
      return fn(BlockQ3K{}), true;
    case Format::kQ4K:
      return fn(BlockQ4K{}), true;
    case Format::kQ5K:
      return fn(BlockQ5K{}), true;
    case Format::kQ6K:
      return fn(BlockQ6K{}), true;
    case Format::kIq4Nl:
      return fn(BlockIq4Nl{}), true;
    case Format::kIq4Xs:
      return fn(BlockIq4Xs{}), true;
    default:
      return false;
  }
}

}  // namespace

const BlockShape* BlockShapeOf(Format format) {
  struct Row {
    Format format;
    BlockShape shape;
  };
  // elements, group, largest code, zero, scales from … to, largest min, table
  static const Row kRows[] = {
      {Format::kQ4_0, {32, 32, 15, 8, 1, 1, 0, {}}},
      {Format::kQ4_1, {32, 32, 15, 0, 1, 1, 1, {}}},
      {Format::kQ5_0, {32, 32, 31, 16, 1, 1, 0, {}}},
      {Format::kQ5_1, {32, 32, 31, 0, 1, 1, 1, {}}},
      {Format::kQ8_0, {32, 32, 255, 128, 1, 1, 0, {}}},
      {Format::kQ2K, {256, 16, 3, 0, 0, 15, 15, {}}},
      {Format::kQ3K, {256, 16, 7, 4, -32, 31, 0, {}}},
      {Format::kQ4K, {256, 32, 15, 0, 0, 63, 63, {}}},
      {Format::kQ5K, {256, 32, 31, 0, 0, 63, 63, {}}},
      {Format::kQ6K, {256, 16, 63, 32, -128, 127, 0, {}}},
      {Format::kIq4Nl, {32, 32, 15, 0, 1, 1, 0, kIq4Values}},
      {Format::kIq4Xs, {256, 32, 15, 0, -32, 31, 0, kIq4Values}},
  };
  for (const Row& row : kRows) {
    if (row.format == format) return &row.shape;
  }
  return nullptr;
}

BlockParts SplitBlock(Format format, const std::byte* block) {
  BlockParts parts;
  const bool known =
      WithBlockOf(format, [&]<class Block>(const Block&) { Split(BlockAt<Block>(block), parts); });
  NIBBLE_CHECK(known);
  return parts;
}

void JoinBlock(Format format, const BlockParts& parts, std::byte* block) {
  const bool known = WithBlockOf(format, [&]<class Block>(Block made) {
    Join(parts, made);
    std::memcpy(block, &made, sizeof made);
  });
  NIBBLE_CHECK(known);
}

}  // namespace nibble
