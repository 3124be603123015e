#include "kernels/pack_blocks.h"

#include <cstring>

#include "format/fp4.h"
#include "format/iq4.h"
#include "format/kquants.h"
#include "format/legacy_quants.h"

namespace nibble {
namespace {

template <class Block>
Block LoadBlock(const std::byte* bytes) {
  Block block;
  std::memcpy(&block, bytes, sizeof block);
  return block;
}

template <class Block>
void ReadNibbles(const std::byte* bytes, uint8_t* codes, RowSide& side) {
  const auto block = LoadBlock<Block>(bytes);
  CodesOfNibbles(block.qs, codes);
  side.d = block.d;
  if constexpr (requires { block.m; }) side.m = block.m;
}

template <class Block>
void ReadFiveBits(const std::byte* bytes, uint8_t* codes, RowSide& side) {
  const auto block = LoadBlock<Block>(bytes);
  CodesOfNibblesAndHigh(block.qs, block.qh, codes);
  side.d = block.d;
  if constexpr (requires { block.m; }) side.m = block.m;
}

void ReadQ8_0(const std::byte* bytes, uint8_t* codes, RowSide& side) {
  const auto block = LoadBlock<BlockQ8_0>(bytes);
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(block.qs[i] ^ 0x80);
  side.d = block.d;
}

void ReadQ2K(const std::byte* bytes, uint8_t* codes, RowSide& side) {
  const auto block = LoadBlock<BlockQ2K>(bytes);
  CodesOf(block, codes);
  side.d = block.d;
  side.m = block.dmin;
  for (int g = 0; g < 16; ++g) {
    side.scales[g] = block.scales[g] & 15;
    side.mins[g] = block.scales[g] >> 4;
  }
}

void ReadQ3K(const std::byte* bytes, uint8_t* codes, RowSide& side) {
  const auto block = LoadBlock<BlockQ3K>(bytes);
  CodesOf(block, codes);
  side.d = block.d;
  for (int g = 0; g < 16; ++g) {
    side.scales[g] = static_cast<uint8_t>(Q3KScale(block.scales, g) + 32);
  }
}

template <class Block>
void ReadScaleMin(const std::byte* bytes, uint8_t* codes, RowSide& side) {
  const auto block = LoadBlock<Block>(bytes);
  CodesOf(block, codes);
  side.d = block.d;
  side.m = block.dmin;
  for (int g = 0; g < 8; ++g) {
    const ScaleMin pair = ScaleMinOf(block.scales, g);
    side.scales[g] = pair.scale;
    side.mins[g] = pair.min;
  }
}

void ReadQ6K(const std::byte* bytes, uint8_t* codes, RowSide& side) {
  const auto block = LoadBlock<BlockQ6K>(bytes);
  CodesOf(block, codes);
  side.d = block.d;
  std::memcpy(side.scales, block.scales, sizeof side.scales);
}

void ReadIq4Xs(const std::byte* bytes, uint8_t* codes, RowSide& side) {
  const auto block = LoadBlock<BlockIq4Xs>(bytes);
  for (int g = 0; g < 8; ++g) {
    CodesOfNibbles(block.qs + 16 * g, codes + 32 * g);
    side.scales[g] = static_cast<uint8_t>(Iq4XsScale(block, g) + 32);
  }
  side.d = block.d;
}

void ReadMxfp4(const std::byte* bytes, uint8_t* codes, RowSide& side) {
  const auto block = LoadBlock<BlockMxfp4>(bytes);
  CodesOfNibbles(block.qs, codes);
  side.scales[0] = block.e;
}

void ReadNvfp4(const std::byte* bytes, uint8_t* codes, RowSide& side) {
  const auto block = LoadBlock<BlockNvfp4>(bytes);
  for (int g = 0; g < 4; ++g) {
    for (int i = 0; i < 8; ++i) {
      codes[16 * g + i] = block.qs[8 * g + i] & 15;
      codes[16 * g + 8 + i] = block.qs[8 * g + i] >> 4;
    }
    side.scales[g] = block.d[g];
  }
}

}  // namespace

ReadBlockFn BlockReader(Format format) {
  switch (format) {
    case Format::kQ4_0:
      return ReadNibbles<BlockQ4_0>;
    case Format::kQ4_1:
      return ReadNibbles<BlockQ4_1>;
    case Format::kQ5_0:
      return ReadFiveBits<BlockQ5_0>;
    case Format::kQ5_1:
      return ReadFiveBits<BlockQ5_1>;
    case Format::kQ8_0:
      return ReadQ8_0;
    case Format::kQ2K:
      return ReadQ2K;
    case Format::kQ3K:
      return ReadQ3K;
    case Format::kQ4K:
      return ReadScaleMin<BlockQ4K>;
    case Format::kQ5K:
      return ReadScaleMin<BlockQ5K>;
    case Format::kQ6K:
      return ReadQ6K;
    case Format::kIq4Nl:
      return ReadNibbles<BlockIq4Nl>;
    case Format::kIq4Xs:
      return ReadIq4Xs;
    case Format::kMxfp4:
      return ReadMxfp4;
    case Format::kNvfp4:
      return ReadNvfp4;
    case Format::kF32:
    case Format::kF16:
    case Format::kBF16:
    case Format::kF8E4M3:
    case Format::kF8E5M2:
      return nullptr;
  }
  return nullptr;
}

}  // namespace nibble
