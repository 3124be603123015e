#include "format/kquants.h"

#include "format/block_io.h"
#include "format/small_float.h"

namespace nibble {
namespace {

// Two-bit codes of Q2_K and Q3_K: half h, quarter t, lane l is element 128h + 32t + l.
void CodesOfPairs(const uint8_t qs[64], uint8_t codes[kSuperBlock]) {
  for (int half = 0; half < 2; ++half) {
    for (int quarter = 0; quarter < 4; ++quarter) {
      for (int l = 0; l < 32; ++l) {
        codes[128 * half + 32 * quarter + l] = (qs[32 * half + l] >> (2 * quarter)) & 3;
      }
    }
  }
}

// Adds bit `to` of all codes: bit e / 32 of bits[e % 32]. (Nested loops vectorise: packing at load
// runs through here.)
void AddBits(const uint8_t bits[32], int to, uint8_t codes[kSuperBlock]) {
  for (int g = 0; g < 8; ++g) {
    for (int l = 0; l < 32; ++l) {
      codes[32 * g + l] = static_cast<uint8_t>(codes[32 * g + l] | (((bits[l] >> g) & 1) << to));
    }
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

void PackPairs(const uint8_t codes[kSuperBlock], uint8_t qs[64]) {
  for (int half = 0; half < 2; ++half) {
    for (int l = 0; l < 32; ++l) {
      const uint8_t* c = codes + 128 * half + l;
      qs[32 * half + l] = static_cast<uint8_t>((c[0] & 3) | ((c[32] & 3) << 2) |
                                               ((c[64] & 3) << 4) | ((c[96] & 3) << 6));
    }
  }
}

// Bit `bit` of every code, element e in bit e / 32 of byte e % 32.
void PackBitPlane(const uint8_t codes[kSuperBlock], int bit, uint8_t plane[32]) {
  std::fill_n(plane, 32, uint8_t{0});
  for (int e = 0; e < kSuperBlock; ++e) {
    plane[e % 32] = static_cast<uint8_t>(plane[e % 32] | (((codes[e] >> bit) & 1) << (e / 32)));
  }
}

void PackNibblePairs(const uint8_t codes[kSuperBlock], uint8_t qs[128]) {
  for (int pair = 0; pair < 4; ++pair) {
    for (int l = 0; l < 32; ++l) {
      const uint8_t* c = codes + 64 * pair + l;
      qs[32 * pair + l] = static_cast<uint8_t>((c[0] & 15) | ((c[32] & 15) << 4));
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
  AddBits(block.hmask, 2, codes);
}

void CodesOf(const BlockQ4K& block, uint8_t codes[kSuperBlock]) {
  CodesOfNibblePairs(block.qs, codes);
}

void CodesOf(const BlockQ5K& block, uint8_t codes[kSuperBlock]) {
  CodesOfNibblePairs(block.qs, codes);
  AddBits(block.qh, 4, codes);
}

void CodesOf(const BlockQ6K& block, uint8_t codes[kSuperBlock]) {
  for (int half = 0; half < 2; ++half) {
    for (int quarter = 0; quarter < 4; ++quarter) {
      const uint8_t* ql = block.ql + 64 * half + 32 * (quarter & 1);
      const uint8_t* qh = block.qh + 32 * half;
      uint8_t* out = codes + 128 * half + 32 * quarter;
      for (int l = 0; l < 32; ++l) {
        const int low = (ql[l] >> (4 * (quarter >> 1))) & 15;
        out[l] = static_cast<uint8_t>(low | (((qh[l] >> (2 * quarter)) & 3) << 4));
      }
    }
  }
}

void PutCodes(const uint8_t codes[kSuperBlock], BlockQ2K& block) { PackPairs(codes, block.qs); }

void PutCodes(const uint8_t codes[kSuperBlock], BlockQ3K& block) {
  PackPairs(codes, block.qs);
  PackBitPlane(codes, 2, block.hmask);
}

void PutCodes(const uint8_t codes[kSuperBlock], BlockQ4K& block) {
  PackNibblePairs(codes, block.qs);
}

void PutCodes(const uint8_t codes[kSuperBlock], BlockQ5K& block) {
  PackNibblePairs(codes, block.qs);
  PackBitPlane(codes, 4, block.qh);
}

void PutCodes(const uint8_t codes[kSuperBlock], BlockQ6K& block) {
  for (int half = 0; half < 2; ++half) {
    for (int l = 0; l < 32; ++l) {
      const uint8_t* c = codes + 128 * half + l;
      block.ql[64 * half + l] = static_cast<uint8_t>((c[0] & 15) | ((c[64] & 15) << 4));
      block.ql[64 * half + 32 + l] = static_cast<uint8_t>((c[32] & 15) | ((c[96] & 15) << 4));
      block.qh[32 * half + l] = static_cast<uint8_t>((c[0] >> 4) | ((c[32] >> 4) << 2) |
                                                     ((c[64] >> 4) << 4) | ((c[96] >> 4) << 6));
    }
  }
}

void PutScaleMin(int g, ScaleMin group, uint8_t scales[12]) {
  const auto [scale, min] = group;
  if (g < 4) {
    scales[g] = static_cast<uint8_t>(scales[g] | scale);
    scales[g + 4] = static_cast<uint8_t>(scales[g + 4] | min);
    return;
  }
  scales[g + 4] = static_cast<uint8_t>((scale & 15) | ((min & 15) << 4));
  scales[g - 4] = static_cast<uint8_t>(scales[g - 4] | ((scale >> 4) << 6));
  scales[g] = static_cast<uint8_t>(scales[g] | ((min >> 4) << 6));
}

void PutQ3KScale(int g, int scale, uint8_t scales[12]) {
  const auto stored = static_cast<unsigned>(scale + 32);
  uint8_t& low = scales[g % 8];
  low = static_cast<uint8_t>(low | ((stored & 15u) << (g < 8 ? 0 : 4)));
  uint8_t& high = scales[8 + g % 4];
  high = static_cast<uint8_t>(high | ((stored >> 4) << (2 * (g / 4))));
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
