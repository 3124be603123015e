#include "format/legacy_quants.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "format/block_io.h"
#include "format/scale_search.h"
#include "format/small_float.h"

namespace nibble {
namespace {

constexpr int kBlock = 32;

struct Range {
  float min;
  float max;
};
Range RangeOf(const float* x) {
  Range range = {x[0], x[0]};
  for (int i = 1; i < kBlock; ++i) {
    range.min = std::min(range.min, x[i]);
    range.max = std::max(range.max, x[i]);
  }
  return range;
}

float Inverse(float d) { return d != 0.0f ? 1.0f / d : 0.0f; }

// Truncation toward zero into 0 … largest; a NaN becomes 0.
uint8_t TruncateTo(float value, int largest) {
  if (!(value > 0.0f)) return 0;
  if (value >= static_cast<float>(largest)) return static_cast<uint8_t>(largest);
  return static_cast<uint8_t>(value);
}

// Codes around `offset` (8 or 16): the element of largest magnitude becomes code 0, exactly.
float SymmetricCodes(const float* x, int offset, uint8_t codes[kBlock]) {
  const float d = SignedMax({x, kBlock}) / static_cast<float>(-offset);
  const float inverse = Inverse(d);
  const float shift = static_cast<float>(offset) + 0.5f;
  for (int i = 0; i < kBlock; ++i) codes[i] = TruncateTo(x[i] * inverse + shift, 2 * offset - 1);
  return d;
}

float AffineCodes(const float* x, const Range& range, int largest, uint8_t codes[kBlock]) {
  const float d = (range.max - range.min) / static_cast<float>(largest);
  const float inverse = Inverse(d);
  for (int i = 0; i < kBlock; ++i) {
    codes[i] = TruncateTo((x[i] - range.min) * inverse + 0.5f, largest);
  }
  return d;
}

// roundf, half away from zero, into −128 … 127; a NaN becomes 0. Without a call and without
// branches, for several at a time: just less than one half is added and the fraction cut off.
int8_t RoundHalfAway(float value) {
  constexpr float kBelowHalf = 0x1.fffffep-2f;
  float held = value == value ? value : 0.0f;
  held = held < 127.0f ? held : 127.0f;
  held = held > -128.0f ? held : -128.0f;
  return static_cast<int8_t>(static_cast<int>(held + std::copysign(kBelowHalf, held)));
}

float LargestMagnitude(const float* x) {
  constexpr int kLanes = 8;
  float largest[kLanes] = {};
  for (int i = 0; i < kBlock; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) {
      const float magnitude = std::fabs(x[i + j]);
      largest[j] = magnitude > largest[j] ? magnitude : largest[j];
    }
  }
  return *std::ranges::max_element(largest);
}

}  // namespace

void PackNibbles(const uint8_t codes[kBlock], uint8_t qs[16]) {
  for (int j = 0; j < 16; ++j) {
    qs[j] = static_cast<uint8_t>((codes[j] & 15) | (codes[j + 16] << 4));
  }
}

void PackHighBits(const uint8_t codes[kBlock], uint8_t qh[4]) {
  std::fill_n(qh, 4, uint8_t{0});
  for (int e = 0; e < kBlock; ++e) {
    qh[e / 8] = static_cast<uint8_t>(qh[e / 8] | ((codes[e] >> 4) << (e % 8)));
  }
}

void CodesOfNibbles(const uint8_t qs[16], uint8_t codes[32]) {
  for (int j = 0; j < 16; ++j) {
    codes[j] = qs[j] & 15;
    codes[j + 16] = qs[j] >> 4;
  }
}

void CodesOfNibblesAndHigh(const uint8_t qs[16], const uint8_t qh[4], uint8_t codes[32]) {
  CodesOfNibbles(qs, codes);
  for (int j = 0; j < 4; ++j) {
    // Bit i of the byte spread to byte i: packing at load runs through here.
    const uint64_t own_bits = (qh[j] * 0x0101010101010101u) & 0x8040201008040201u;
    const uint64_t ones = ((own_bits + 0x7f7f7f7f7f7f7f7fu) >> 7) & 0x0101010101010101u;
    uint64_t eight = 0;
    std::memcpy(&eight, codes + 8 * j, sizeof eight);
    eight |= ones << 4;
    std::memcpy(codes + 8 * j, &eight, sizeof eight);
  }
}

void DecodeQ4_0(const std::byte* src, float* dst, size_t count) {
  DecodeBlocks<BlockQ4_0, kBlock>(src, dst, count, [](const BlockQ4_0& block, float* y) {
    uint8_t codes[kBlock];
    CodesOfNibbles(block.qs, codes);
    const float d = F16ToF32(block.d);
    for (int i = 0; i < kBlock; ++i) y[i] = d * static_cast<float>(codes[i] - 8);
  });
}

void EncodeQ4_0(const float* src, std::byte* dst, size_t count) {
  EncodeBlocks<BlockQ4_0, kBlock>(src, dst, count, [](const float* x) {
    BlockQ4_0 block;
    uint8_t codes[kBlock];
    block.d = F32ToF16(SymmetricCodes(x, 8, codes));
    PackNibbles(codes, block.qs);
    return block;
  });
}

void DecodeQ4_1(const std::byte* src, float* dst, size_t count) {
  DecodeBlocks<BlockQ4_1, kBlock>(src, dst, count, [](const BlockQ4_1& block, float* y) {
    uint8_t codes[kBlock];
    CodesOfNibbles(block.qs, codes);
    const float d = F16ToF32(block.d);
    const float m = F16ToF32(block.m);
    for (int i = 0; i < kBlock; ++i) y[i] = d * static_cast<float>(codes[i]) + m;
  });
}

void EncodeQ4_1(const float* src, std::byte* dst, size_t count) {
  EncodeBlocks<BlockQ4_1, kBlock>(src, dst, count, [](const float* x) {
    BlockQ4_1 block;
    uint8_t codes[kBlock];
    const Range range = RangeOf(x);
    block.d = F32ToF16(AffineCodes(x, range, 15, codes));
    block.m = F32ToF16(range.min);
    PackNibbles(codes, block.qs);
    return block;
  });
}

void DecodeQ5_0(const std::byte* src, float* dst, size_t count) {
  DecodeBlocks<BlockQ5_0, kBlock>(src, dst, count, [](const BlockQ5_0& block, float* y) {
    uint8_t codes[kBlock];
    CodesOfNibblesAndHigh(block.qs, block.qh, codes);
    const float d = F16ToF32(block.d);
    for (int i = 0; i < kBlock; ++i) y[i] = d * static_cast<float>(codes[i] - 16);
  });
}

void EncodeQ5_0(const float* src, std::byte* dst, size_t count) {
  EncodeBlocks<BlockQ5_0, kBlock>(src, dst, count, [](const float* x) {
    BlockQ5_0 block;
    uint8_t codes[kBlock];
    block.d = F32ToF16(SymmetricCodes(x, 16, codes));
    PackNibbles(codes, block.qs);
    PackHighBits(codes, block.qh);
    return block;
  });
}

void DecodeQ5_1(const std::byte* src, float* dst, size_t count) {
  DecodeBlocks<BlockQ5_1, kBlock>(src, dst, count, [](const BlockQ5_1& block, float* y) {
    uint8_t codes[kBlock];
    CodesOfNibblesAndHigh(block.qs, block.qh, codes);
    const float d = F16ToF32(block.d);
    const float m = F16ToF32(block.m);
    for (int i = 0; i < kBlock; ++i) y[i] = d * static_cast<float>(codes[i]) + m;
  });
}

void EncodeQ5_1(const float* src, std::byte* dst, size_t count) {
  EncodeBlocks<BlockQ5_1, kBlock>(src, dst, count, [](const float* x) {
    BlockQ5_1 block;
    uint8_t codes[kBlock];
    const Range range = RangeOf(x);
    block.d = F32ToF16(AffineCodes(x, range, 31, codes));
    block.m = F32ToF16(range.min);
    PackNibbles(codes, block.qs);
    PackHighBits(codes, block.qh);
    return block;
  });
}

void DecodeQ8_0(const std::byte* src, float* dst, size_t count) {
  DecodeBlocks<BlockQ8_0, kBlock>(src, dst, count, [](const BlockQ8_0& block, float* y) {
    const float d = F16ToF32(block.d);
    for (int i = 0; i < kBlock; ++i) y[i] = d * static_cast<float>(block.qs[i]);
  });
}

void EncodeQ8_0(const float* src, std::byte* dst, size_t count) {
  EncodeBlocks<BlockQ8_0, kBlock>(src, dst, count, [](const float* x) {
    BlockQ8_0 block;
    const float d = LargestMagnitude(x) / 127.0f;
    const float inverse = Inverse(d);
    block.d = F32ToF16(d);
    for (int i = 0; i < kBlock; ++i) block.qs[i] = RoundHalfAway(x[i] * inverse);
    return block;
  });
}

}  // namespace nibble
