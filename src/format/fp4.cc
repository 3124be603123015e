#include "format/fp4.h"

#include <algorithm>
#include <cmath>

#include "format/block_io.h"
#include "format/small_float.h"

namespace nibble {
namespace {

// The nearest code; of two equally near ones the lower, which is the smaller magnitude and, for
// zero, the positive one. half_scale is half the group's scale: the table is doubled.
uint8_t NearestE2M1(float x, float half_scale) {
  uint8_t best = 0;
  float best_error = std::fabs(0.0f - x);
  for (uint8_t code = 1; code < 16; ++code) {
    const float error = std::fabs(static_cast<float>(kE2M1Doubled[code]) * half_scale - x);
    if (error < best_error) {
      best = code;
      best_error = error;
    }
  }
  return best;
}

// Encodes `group` elements at x into group / 2 bytes.
void EncodeGroup(const float* x, int group, float half_scale, uint8_t* qs) {
  const int half = group / 2;
  for (int j = 0; j < half; ++j) {
    qs[j] = static_cast<uint8_t>(NearestE2M1(x[j], half_scale) |
                                 (NearestE2M1(x[j + half], half_scale) << 4));
  }
}

void DecodeGroup(const uint8_t* qs, int group, float half_scale, float* y) {
  const int half = group / 2;
  for (int j = 0; j < half; ++j) {
    y[j] = half_scale * static_cast<float>(kE2M1Doubled[qs[j] & 15]);
    y[j + half] = half_scale * static_cast<float>(kE2M1Doubled[qs[j] >> 4]);
  }
}

float LargestMagnitude(const float* x, int count) {
  float largest = 0.0f;
  for (int i = 0; i < count; ++i) largest = std::max(largest, std::fabs(x[i]));
  return largest;
}

// ⌊log2 largest⌋ − 2 (the exponent of E2M1's largest value, 6), biased. The logarithm is rounded
// to a float before the floor, as the references do it: just below a power of two it is that power.
// Their wrap-around below 2^-125 is not kept.
uint8_t SharedExponent(float largest) {
  if (!(largest > 0.0f)) return 0;
  if (std::isinf(largest)) return 254;
  const auto log2 = static_cast<float>(std::log2(static_cast<double>(largest)));
  return static_cast<uint8_t>(std::max(0, static_cast<int>(std::floor(log2)) - 2 + 127));
}

}  // namespace

void DecodeMxfp4(const std::byte* src, float* dst, size_t count) {
  DecodeBlocks<BlockMxfp4, 32>(src, dst, count, [](const BlockMxfp4& block, float* y) {
    DecodeGroup(block.qs, 32, E8M0ToF32Half(block.e), y);
  });
}

void EncodeMxfp4(const float* src, std::byte* dst, size_t count) {
  EncodeBlocks<BlockMxfp4, 32>(src, dst, count, [](const float* x) {
    BlockMxfp4 block;
    block.e = SharedExponent(LargestMagnitude(x, 32));
    EncodeGroup(x, 32, E8M0ToF32Half(block.e), block.qs);
    return block;
  });
}

void DecodeNvfp4(const std::byte* src, float* dst, size_t count) {
  DecodeBlocks<BlockNvfp4, 64>(src, dst, count, [](const BlockNvfp4& block, float* y) {
    for (int s = 0; s < 4; ++s) {
      DecodeGroup(block.qs + 8 * s, 16, UE4M3ToF32(block.d[s]) * 0.5f, y + 16 * s);
    }
  });
}

void EncodeNvfp4(const float* src, std::byte* dst, size_t count) {
  EncodeBlocks<BlockNvfp4, 64>(src, dst, count, [](const float* x) {
    BlockNvfp4 block;
    for (int s = 0; s < 4; ++s) {
      const float* group = x + 16 * s;
      block.d[s] = F32ToUE4M3(LargestMagnitude(group, 16) / 6.0f);
      EncodeGroup(group, 16, UE4M3ToF32(block.d[s]) * 0.5f, block.qs + 8 * s);
    }
    return block;
  });
}

}  // namespace nibble
