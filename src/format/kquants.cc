#include "format/kquants.h"

#include "format/block_io.h"
#include "format/small_float.h"

namespace nibble {
namespace {

// Two-bit codes of Q2_K and Q3_K: half h, quarter t, lane l is element 128h + 32t + l.
void CodesOfPairs(const uint8_t qs[64], uint8_t codes[kSuperBlock]) {
  for (int e = 0; e < kSuperBlock; ++e) {
    codes[e] = (qs[32 * (e / 128) + e % 32] >> (2 * ((e % 128) / 32))) & 3;
  }
}

// Four-bit codes of Q4_K and Q5_K: pairs of groups of 32 share 32 bytes.
void CodesOfNibblePairs(const uint8_t qs[128], uint8_t codes[kSuperBlock]) {
  for (int pair = 0; pair < 4; ++pair) {
    for (int l = 0; l < 32; ++l) {
      const uint8_t byte = qs[32 * pair + l];
      codes[64 * pair + l] = byte & 15;
      codes[64 * pair + 32 + l] = byte >> 4;
    }
  }
}

template <class Block>
void DecodeScaleMinBlock(const Block& block, float* y) {
  uint8_t codes[kSuperBlock];
  CodesOf(block, codes);
  const float d = F16ToF32(block.d);
  const float dmin = F16ToF32(block.dmin);
  for (int g = 0; g < 8; ++g) {
    const ScaleMin group = ScaleMinOf(block.scales, g);
    const float scale = d * static_cast<float>(group.scale);
    const float min = dmin * static_cast<float>(group.min);
    for (int e = 32 * g; e < 32 * g + 32; ++e) y[e] = scale * static_cast<float>(codes[e]) - min;
  }
}

}  // namespace

void CodesOf(const BlockQ2K& block, uint8_t codes[kSuperBlock]) { CodesOfPairs(block.qs, codes); }

void CodesOf(const BlockQ3K& block, uint8_t codes[kSuperBlock]) {
  CodesOfPairs(block.qs, codes);
  for (int e = 0; e < kSuperBlock; ++e) {
    codes[e] = static_cast<uint8_t>(codes[e] | (((block.hmask[e % 32] >> (e / 32)) & 1) << 2));
  }
}

void CodesOf(const BlockQ4K& block, uint8_t codes[kSuperBlock]) {
  CodesOfNibblePairs(block.qs, codes);
}

void CodesOf(const BlockQ5K& block, uint8_t codes[kSuperBlock]) {
  CodesOfNibblePairs(block.qs, codes);
  for (int e = 0; e < kSuperBlock; ++e) {
    codes[e] = static_cast<uint8_t>(codes[e] | (((block.qh[e % 32] >> (e / 32)) & 1) << 4));
  }
}

void CodesOf(const BlockQ6K& block, uint8_t codes[kSuperBlock]) {
  for (int e = 0; e < kSuperBlock; ++e) {
    const int half = e / 128;
    const int quarter = (e % 128) / 32;
    const int lane = e % 32;
    const int low = (block.ql[64 * half + lane + 32 * (quarter & 1)] >> (4 * (quarter >> 1))) & 15;
    const int high = (block.qh[32 * half + lane] >> (2 * quarter)) & 3;
    codes[e] = static_cast<uint8_t>(low | (high << 4));
  }
}

void DecodeQ2K(const std::byte* src, float* dst, size_t count) {
  DecodeBlocks<BlockQ2K, kSuperBlock>(src, dst, count, [](const BlockQ2K& block, float* y) {
    uint8_t codes[kSuperBlock];
    CodesOf(block, codes);
    const float d = F16ToF32(block.d);
    const float dmin = F16ToF32(block.dmin);
    for (int g = 0; g < 16; ++g) {
      const float scale = d * static_cast<float>(block.scales[g] & 15);
      const float min = dmin * static_cast<float>(block.scales[g] >> 4);
      for (int e = 16 * g; e < 16 * g + 16; ++e) y[e] = scale * static_cast<float>(codes[e]) - min;
    }
  });
}

void DecodeQ3K(const std::byte* src, float* dst, size_t count) {
  DecodeBlocks<BlockQ3K, kSuperBlock>(src, dst, count, [](const BlockQ3K& block, float* y) {
    uint8_t codes[kSuperBlock];
    CodesOf(block, codes);
    const float d = F16ToF32(block.d);
    for (int g = 0; g < 16; ++g) {
      const float scale = d * static_cast<float>(Q3KScale(block.scales, g));
      for (int e = 16 * g; e < 16 * g + 16; ++e) y[e] = scale * static_cast<float>(codes[e] - 4);
    }
  });
}

void DecodeQ4K(const std::byte* src, float* dst, size_t count) {
  DecodeBlocks<BlockQ4K, kSuperBlock>(src, dst, count, DecodeScaleMinBlock<BlockQ4K>);
}

void DecodeQ5K(const std::byte* src, float* dst, size_t count) {
  DecodeBlocks<BlockQ5K, kSuperBlock>(src, dst, count, DecodeScaleMinBlock<BlockQ5K>);
}

void DecodeQ6K(const std::byte* src, float* dst, size_t count) {
  DecodeBlocks<BlockQ6K, kSuperBlock>(src, dst, count, [](const BlockQ6K& block, float* y) {
    uint8_t codes[kSuperBlock];
    CodesOf(block, codes);
    const float d = F16ToF32(block.d);
    for (int g = 0; g < 16; ++g) {
      const float scale = d * static_cast<float>(block.scales[g]);
      for (int e = 16 * g; e < 16 * g + 16; ++e) y[e] = scale * static_cast<float>(codes[e] - 32);
    }
  });
}

}  // namespace nibble
