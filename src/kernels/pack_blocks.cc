#include "kernels/pack_blocks.h"

#include <algorithm>
#include <cstring>

#include "format/fp4.h"
#include "format/grouped_quants.h"
#include "format/iq4.h"
#include "format/kquants.h"
#include "format/legacy_quants.h"
#include "kernels/pack_vectors.h"

namespace nibble {
namespace {

// How a panel's bytes follow from the file's: a vector of a panel is word after word of its rows'
// blocks, because file and panel keep the four depths of a word in four bytes; only the bits inside
// the bytes differ. So words are transposed first, and then all bytes of a register are changed
// alike. (Bytes to an array of codes, and codes to planes: 2 to 8 times slower.)

constexpr int kVectorBytes = 64;

// Four rows of a chunk: their blocks, and where their quarter of the first vector of codes lies.
struct FourRows {
  const std::byte* const* blocks;
  uint8_t* codes;

  // The 16 bytes at `offset` of the four blocks.
  Quad Load(size_t offset) const {
    return Transpose(LoadVector(blocks[0] + offset), LoadVector(blocks[1] + offset),
                     LoadVector(blocks[2] + offset), LoadVector(blocks[3] + offset));
  }
  void Store(int vector, Words4 words) const { StoreVector(codes + vector * kVectorBytes, words); }
};

// 32 codes in 16 bytes, depths j and j + 16 in byte j: as panels have them.
void CopyNibbles(const FourRows& rows, size_t offset, int vector) {
  const Quad quad = rows.Load(offset);
  for (int v = 0; v < 4; ++v) rows.Store(vector + v, quad.word[v]);
}

// Two groups of 32 in 32 bytes, one in the low nibbles and one in the high ones.
void SplitNibbles(const FourRows& rows, size_t offset, int low_vector, int high_vector) {
  const Quad first = rows.Load(offset);
  const Quad second = rows.Load(offset + 16);
  for (int v = 0; v < 4; ++v) {
    Words4 low = first.word[v];
    Words4 high = second.word[v];
    SwapBits<4>(low, high, 0x0f);
    rows.Store(low_vector + v, low);
    rows.Store(high_vector + v, high);
  }
}

// Four groups of 32 in 32 bytes, group q at bits 2 q; its two vectors from `vector + q · stride`
// on.
void SplitCrumbs(const FourRows& rows, size_t offset, int vector, int stride) {
  for (int v = 0; v < 2; ++v) {
    Quad quad = rows.Load(offset + static_cast<size_t>(v) * 16);
    TransposeCrumbs(quad.word);
    for (int q = 0; q < 4; ++q) rows.Store(vector + q * stride + v, quad.word[q]);
  }
}

// Eight groups of 32 in 32 bytes, group g at bit g; its vector is `vector + g · stride`.
void SplitBits(const FourRows& rows, size_t offset, int vector, int stride) {
  const Quad first = rows.Load(offset);
  const Quad second = rows.Load(offset + 16);
  Words4 words[8];
  for (int i = 0; i < 4; ++i) words[i] = first.word[i];
  for (int i = 0; i < 4; ++i) words[4 + i] = second.word[i];
  TransposeBits(words);
  for (int g = 0; g < 8; ++g) rows.Store(vector + g * stride, words[g]);
}

template <class Block>
void NibbleCodes(const FourRows& rows) {
  CopyNibbles(rows, offsetof(Block, qs), 0);
}

template <class Block>
void FiveBitCodes(const FourRows& rows) {
  CopyNibbles(rows, offsetof(Block, qs), 0);
  Words4 bits = {};
  for (int r = 0; r < 4; ++r) {
    uint32_t word = 0;
    std::memcpy(&word, rows.blocks[r] + offsetof(Block, qh), sizeof word);
    bits[r] = word;
  }
  rows.Store(4, NibbleBitsToBytes(bits));
}

void ByteCodes(const FourRows& rows) {
  for (int half = 0; half < 2; ++half) {
    const Quad quad = rows.Load(offsetof(BlockQ8_0, qs) + static_cast<size_t>(half) * 16);
    for (int v = 0; v < 4; ++v) rows.Store(half * 4 + v, quad.word[v] ^ 0x80808080u);
  }
}

template <int kGroup>
void GroupedCodes(const FourRows& rows) {
  using Block4 = BlockW4<kGroup>;
  for (int g = 0; g < kGroup / 32; ++g) {
    CopyNibbles(rows, offsetof(Block4, qs) + static_cast<size_t>(g) * 16, g * 4);
  }
}

template <int kGroup>
void GroupedByteCodes(const FourRows& rows) {
  using Block8 = BlockW8<kGroup>;
  for (int i = 0; i < kGroup / 16; ++i) {
    const Quad quad = rows.Load(offsetof(Block8, qs) + static_cast<size_t>(i) * 16);
    for (int v = 0; v < 4; ++v) rows.Store(i * 4 + v, quad.word[v]);
  }
}

void Q2KCodes(const FourRows& rows) {
  for (int half = 0; half < 2; ++half) {
    SplitCrumbs(rows, offsetof(BlockQ2K, qs) + static_cast<size_t>(half) * 32, half * 8, 2);
  }
}

void Q3KCodes(const FourRows& rows) {
  for (int half = 0; half < 2; ++half) {
    SplitCrumbs(rows, offsetof(BlockQ3K, qs) + static_cast<size_t>(half) * 32, half * 12, 3);
  }
  SplitBits(rows, offsetof(BlockQ3K, hmask), 2, 3);
}

void Q4KCodes(const FourRows& rows) {
  for (int pair = 0; pair < 4; ++pair) {
    const int vector = pair * 8;
    SplitNibbles(rows, offsetof(BlockQ4K, qs) + static_cast<size_t>(pair) * 32, vector, vector + 4);
  }
}

void Q5KCodes(const FourRows& rows) {
  for (int pair = 0; pair < 4; ++pair) {
    const int vector = pair * 10;
    SplitNibbles(rows, offsetof(BlockQ5K, qs) + static_cast<size_t>(pair) * 32, vector, vector + 5);
  }
  SplitBits(rows, offsetof(BlockQ5K, qh), 4, 5);
}

// A half of 128: groups i and i + 2 share bytes of ql, all four the bytes of qh.
void Q6KCodes(const FourRows& rows) {
  for (int half = 0; half < 2; ++half) {
    const auto low = offsetof(BlockQ6K, ql) + static_cast<size_t>(half) * 64;
    const int vector = half * 24;
    SplitNibbles(rows, low, vector, vector + 12);
    SplitNibbles(rows, low + 32, vector + 6, vector + 18);
    SplitCrumbs(rows, offsetof(BlockQ6K, qh) + static_cast<size_t>(half) * 32, vector + 4, 6);
  }
}

void Iq4XsCodes(const FourRows& rows) {
  for (int g = 0; g < 8; ++g) {
    CopyNibbles(rows, offsetof(BlockIq4Xs, qs) + static_cast<size_t>(g) * 16, g * 4);
  }
}

// Two groups of 16 in 16 bytes: depths j and j + 8 of a group in its byte j.
void Nvfp4Codes(const FourRows& rows) {
  for (int g = 0; g < 2; ++g) {
    const Quad quad = rows.Load(offsetof(BlockNvfp4, qs) + static_cast<size_t>(g) * 16);
    for (int v = 0; v < 2; ++v) {
      Words4 low = quad.word[v];
      Words4 high = quad.word[v + 2];
      SwapBits<4>(low, high, 0x0f);
      rows.Store(g * 4 + v, low);
      rows.Store(g * 4 + v + 2, high);
    }
  }
}

// Sides, of one row each. An array of a side has 16 bytes, one per row.

void PutHalf(const std::byte* bits, int row, uint8_t* array) {
  std::memcpy(array + 2 * row, bits, sizeof(uint16_t));
}

template <int kCount>
void PutBytes(const std::byte* bytes, int row, uint8_t* arrays) {
  for (int i = 0; i < kCount; ++i) arrays[i * kPanelRows + row] = static_cast<uint8_t>(bytes[i]);
}

constexpr int kHalves = 2 * kPanelRows;  // bytes of an array of f16

template <class Block>
void F16Side(const std::byte* block, int row, uint8_t* side) {
  PutHalf(block + offsetof(Block, d), row, side);
  if constexpr (requires(Block b) { b.m; }) {
    PutHalf(block + offsetof(Block, m), row, side + kHalves);
  }
}

void GroupedSide(const std::byte* block, int row, uint8_t* side) {
  using Block = BlockW4<32>;  // all begin alike
  PutHalf(block + offsetof(Block, d), row, side);
  PutBytes<1>(block + offsetof(Block, z), row, side + kHalves);
}

void Mxfp4Side(const std::byte* block, int row, uint8_t* side) {
  PutBytes<1>(block + offsetof(BlockMxfp4, e), row, side);
}

void Nvfp4Side(const std::byte* block, int row, uint8_t* side) {
  PutBytes<4>(block + offsetof(BlockNvfp4, d), row, side);
}

void Q2KSide(const std::byte* block, int row, uint8_t* side) {
  PutHalf(block + offsetof(BlockQ2K, d), row, side);
  PutHalf(block + offsetof(BlockQ2K, dmin), row, side + kHalves);
  PutBytes<16>(block + offsetof(BlockQ2K, scales), row, side + 2 * kHalves);
}

// The file's bytes are the panel's: low four bits of groups g and g + 8, then the top two of four.
void Q3KSide(const std::byte* block, int row, uint8_t* side) {
  PutHalf(block + offsetof(BlockQ3K, d), row, side);
  PutBytes<12>(block + offsetof(BlockQ3K, scales), row, side + kHalves);
}

// ScaleMinOf, eight groups at a time. Bytes 0 … 3 of the file: scales of groups 0 … 3, above them
// the top bits of the scales of 4 … 7; bytes 4 … 7: minima likewise; bytes 8 … 11: low four bits of
// scales and minima of 4 … 7.
template <class Block>
void ScaleMinSide(const std::byte* block, int row, uint8_t* side) {
  PutHalf(block + offsetof(Block, d), row, side);
  PutHalf(block + offsetof(Block, dmin), row, side + kHalves);
  uint32_t file[3];
  std::memcpy(file, block + offsetof(Block, scales), sizeof file);
  const uint32_t panel[3] = {(file[0] & 0x0f0f0f0fu) | (file[1] & 0x0f0f0f0fu) << 4, file[2],
                             (file[0] >> 4 & 0x0f0f0f0fu) | (file[1] & 0xf0f0f0f0u)};
  std::byte bytes[12];
  std::memcpy(bytes, panel, sizeof bytes);
  PutBytes<12>(bytes, row, side + 2 * kHalves);
}

void Q6KSide(const std::byte* block, int row, uint8_t* side) {
  PutHalf(block + offsetof(BlockQ6K, d), row, side);
  PutBytes<16>(block + offsetof(BlockQ6K, scales), row, side + kHalves);
}

void Iq4XsSide(const std::byte* block, int row, uint8_t* side) {
  BlockIq4Xs head;
  std::memcpy(&head, block, offsetof(BlockIq4Xs, qs));
  PutHalf(block + offsetof(BlockIq4Xs, d), row, side);
  uint8_t* low = side + kHalves + row;
  uint8_t* high = low + 4 * kPanelRows;
  for (int g = 0; g < 4; ++g) {
    const int shift = g % 2 * 4;
    const int even = head.scales_l[g / 2] >> shift & 15;
    const int odd = head.scales_l[g / 2 + 2] >> shift & 15;
    low[g * kPanelRows] = static_cast<uint8_t>(even | odd << 4);
  }
  for (int i = 0; i < 2; ++i) {
    int crumbs = 0;
    for (int g = i; g < 8; g += 2) crumbs |= (head.scales_h >> (2 * g) & 3) << (g / 2 * 2);
    high[i * kPanelRows] = static_cast<uint8_t>(crumbs);
  }
}

using CodesFn = void (*)(const FourRows& rows);
using SideFn = void (*)(const std::byte* block, int row, uint8_t* side);

template <Format kFormat, SideFn kSide, CodesFn kCodes>
void PackChunk(const std::byte* const (&blocks)[kPanelRows], uint8_t* chunk) {
  constexpr int kSideBytes = PanelLayoutOf(kFormat).side_bytes();
  for (int r = 0; r < kPanelRows; ++r) kSide(blocks[r], r, chunk);
  for (int r = 0; r < kPanelRows; r += 4) kCodes({blocks + r, chunk + kSideBytes + r * 4});
}

}  // namespace

PackChunkFn ChunkPacker(Format format) {
  switch (format) {
    case Format::kQ4_0:
      return PackChunk<Format::kQ4_0, F16Side<BlockQ4_0>, NibbleCodes<BlockQ4_0>>;
    case Format::kQ4_1:
      return PackChunk<Format::kQ4_1, F16Side<BlockQ4_1>, NibbleCodes<BlockQ4_1>>;
    case Format::kQ5_0:
      return PackChunk<Format::kQ5_0, F16Side<BlockQ5_0>, FiveBitCodes<BlockQ5_0>>;
    case Format::kQ5_1:
      return PackChunk<Format::kQ5_1, F16Side<BlockQ5_1>, FiveBitCodes<BlockQ5_1>>;
    case Format::kQ8_0:
      return PackChunk<Format::kQ8_0, F16Side<BlockQ8_0>, ByteCodes>;
    case Format::kQ2K:
      return PackChunk<Format::kQ2K, Q2KSide, Q2KCodes>;
    case Format::kQ3K:
      return PackChunk<Format::kQ3K, Q3KSide, Q3KCodes>;
    case Format::kQ4K:
      return PackChunk<Format::kQ4K, ScaleMinSide<BlockQ4K>, Q4KCodes>;
    case Format::kQ5K:
      return PackChunk<Format::kQ5K, ScaleMinSide<BlockQ5K>, Q5KCodes>;
    case Format::kQ6K:
      return PackChunk<Format::kQ6K, Q6KSide, Q6KCodes>;
    case Format::kIq4Nl:
      return PackChunk<Format::kIq4Nl, F16Side<BlockIq4Nl>, NibbleCodes<BlockIq4Nl>>;
    case Format::kIq4Xs:
      return PackChunk<Format::kIq4Xs, Iq4XsSide, Iq4XsCodes>;
    case Format::kMxfp4:
      return PackChunk<Format::kMxfp4, Mxfp4Side, NibbleCodes<BlockMxfp4>>;
    case Format::kNvfp4:
      return PackChunk<Format::kNvfp4, Nvfp4Side, Nvfp4Codes>;
    case Format::kW4G32:
      return PackChunk<Format::kW4G32, GroupedSide, GroupedCodes<32>>;
    case Format::kW4G64:
      return PackChunk<Format::kW4G64, GroupedSide, GroupedCodes<64>>;
    case Format::kW4G128:
      return PackChunk<Format::kW4G128, GroupedSide, GroupedCodes<128>>;
    case Format::kW8G32:
      return PackChunk<Format::kW8G32, GroupedSide, GroupedByteCodes<32>>;
    case Format::kW8G64:
      return PackChunk<Format::kW8G64, GroupedSide, GroupedByteCodes<64>>;
    case Format::kW8G128:
      return PackChunk<Format::kW8G128, GroupedSide, GroupedByteCodes<128>>;
    case Format::kF32:
    case Format::kF16:
    case Format::kBF16:
    case Format::kF8E4M3:
    case Format::kF8E5M2:
      return nullptr;
  }
  return nullptr;
}

void FillMissingBlock(Format format, std::span<std::byte, kLargestBlock> block) {
  std::ranges::fill(block, std::byte{0});
  if (format == Format::kMxfp4) {
    block[offsetof(BlockMxfp4, e)] = std::byte{127};  // 2^-128 would be a denormal
  }
  if (format == Format::kQ8_0) {
    std::ranges::fill(block.subspan(offsetof(BlockQ8_0, qs), sizeof BlockQ8_0::qs),
                      std::byte{0x80});
  }
}

}  // namespace nibble
