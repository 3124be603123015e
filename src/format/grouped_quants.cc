#include "format/grouped_quants.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "format/block_io.h"
#include "format/small_float.h"

namespace nibble {
namespace {

// Code of element i of a block.
template <int kGroup>
int CodeOf(const BlockW4<kGroup>& block, int i) {
  const uint8_t byte = block.qs[i / 32 * 16 + i % 16];
  return i % 32 < 16 ? byte & 15 : byte >> 4;
}
template <int kGroup>
int CodeOf(const BlockW8<kGroup>& block, int i) {
  return block.qs[i];
}

template <int kGroup>
void PutCodes(const uint8_t* codes, BlockW4<kGroup>& block) {
  for (int g = 0; g < kGroup / 32; ++g) {
    for (int j = 0; j < 16; ++j) {
      block.qs[g * 16 + j] = static_cast<uint8_t>(codes[g * 32 + j] | codes[g * 32 + 16 + j] << 4);
    }
  }
}
template <int kGroup>
void PutCodes(const uint8_t* codes, BlockW8<kGroup>& block) {
  std::copy_n(codes, kGroup, block.qs);
}

template <class Block>
Block MakeBlock(uint16_t d, uint8_t zero, const uint8_t* codes) {
  Block block;
  std::memcpy(block.d, &d, sizeof d);
  block.z = zero;
  PutCodes(codes, block);
  return block;
}

template <class Block, int kGroup>
void DecodeGroups(const std::byte* src, float* dst, size_t count) {
  DecodeBlocks<Block, kGroup>(src, dst, count, [](const Block& block, float* out) {
    uint16_t half = 0;
    std::memcpy(&half, block.d, sizeof half);
    const float d = F16ToF32(half);
    for (int i = 0; i < kGroup; ++i) out[i] = static_cast<float>(CodeOf(block, i) - block.z) * d;
  });
}

// Nearest integer, halves to even, within 0 … top; a NaN becomes 0.
uint8_t NearestCode(float value, float top) {
  if (!(value > 0.0f)) return 0;
  return static_cast<uint8_t>(std::nearbyint(std::min(value, top)));
}

template <class Block, int kGroup, int kTop>
void EncodeGroups(const float* src, std::byte* dst, size_t count) {
  constexpr auto kTopFloat = static_cast<float>(kTop);
  EncodeBlocks<Block, kGroup>(src, dst, count, [](const float* x) {
    float min = 0;
    float max = 0;
    for (int i = 0; i < kGroup; ++i) {
      min = std::min(min, x[i]);
      max = std::max(max, x[i]);
    }
    const uint16_t half = F32ToF16Saturating((max - min) / kTopFloat);
    const float d = F16ToF32(half);
    const float inverse = d > 0.0f ? 1.0f / d : 0.0f;
    const uint8_t zero = NearestCode(-min * inverse, kTopFloat);
    uint8_t codes[kGroup];
    for (int i = 0; i < kGroup; ++i) {
      const float step = std::nearbyint(x[i] * inverse);
      codes[i] = NearestCode(step + static_cast<float>(zero), kTopFloat);
    }
    return MakeBlock<Block>(half, zero, codes);
  });
}

template <class Block>
void Put(uint16_t d, uint8_t zero, const uint8_t* codes, std::byte* to) {
  const Block block = MakeBlock<Block>(d, zero, codes);
  std::memcpy(to, &block, sizeof block);
}

}  // namespace

Format GroupedFormat(int bits, int group) {
  NIBBLE_CHECK((bits == 4 || bits == 8) && (group == 32 || group == 64 || group == 128));
  if (bits == 4) {
    return group == 32 ? Format::kW4G32 : group == 64 ? Format::kW4G64 : Format::kW4G128;
  }
  return group == 32 ? Format::kW8G32 : group == 64 ? Format::kW8G64 : Format::kW8G128;
}

bool IsGrouped(Format format) { return format >= Format::kW4G32 && format <= Format::kW8G128; }

void PutGroupedBlock(Format format, uint16_t d, uint8_t zero, const uint8_t* codes,
                     std::byte* block) {
  switch (format) {
    case Format::kW4G32:
      return Put<BlockW4<32>>(d, zero, codes, block);
    case Format::kW4G64:
      return Put<BlockW4<64>>(d, zero, codes, block);
    case Format::kW4G128:
      return Put<BlockW4<128>>(d, zero, codes, block);
    case Format::kW8G32:
      return Put<BlockW8<32>>(d, zero, codes, block);
    case Format::kW8G64:
      return Put<BlockW8<64>>(d, zero, codes, block);
    case Format::kW8G128:
      return Put<BlockW8<128>>(d, zero, codes, block);
    default:
      NIBBLE_CHECK(false && "no grouped format");
  }
}

#define NIBBLE_GROUPED(NAME, BLOCK, GROUP, TOP)                       \
  void Decode##NAME(const std::byte* src, float* dst, size_t count) { \
    DecodeGroups<BLOCK<GROUP>, GROUP>(src, dst, count);               \
  }                                                                   \
  void Encode##NAME(const float* src, std::byte* dst, size_t count) { \
    EncodeGroups<BLOCK<GROUP>, GROUP, TOP>(src, dst, count);          \
  }
NIBBLE_GROUPED(W4G32, BlockW4, 32, 15)
NIBBLE_GROUPED(W4G64, BlockW4, 64, 15)
NIBBLE_GROUPED(W4G128, BlockW4, 128, 15)
NIBBLE_GROUPED(W8G32, BlockW8, 32, 255)
NIBBLE_GROUPED(W8G64, BlockW8, 64, 255)
NIBBLE_GROUPED(W8G128, BlockW8, 128, 255)
#undef NIBBLE_GROUPED

}  // namespace nibble
