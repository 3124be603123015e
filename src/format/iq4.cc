#include "format/iq4.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "format/block_io.h"
#include "format/scale_search.h"
#include "format/scale_search_lanes.h"
#include "format/small_float.h"

namespace nibble {
namespace {

constexpr int kGroup = 32;
constexpr int kGroups = 8;

// Index of the table's nearest value; between two equally near ones the upper.
uint8_t NearestValue(float x) {
  if (x <= static_cast<float>(kIq4Values[0])) return 0;
  if (x >= static_cast<float>(kIq4Values[15])) return 15;
  uint8_t upper = 1;  // the first entry above x
  while (upper < 15 && !(x < static_cast<float>(kIq4Values[upper]))) ++upper;
  const float below = x - static_cast<float>(kIq4Values[upper - 1]);
  const float above = static_cast<float>(kIq4Values[upper]) - x;
  return below < above ? static_cast<uint8_t>(upper - 1) : upper;
}

// What errors in groups that share a spread cost, [count]. importance: [count], or null.
void WeighIq4(const float* x, const float* importance, size_t count, float* weights) {
  if (importance == nullptr) {
    for (size_t j = 0; j < count; ++j) weights[j] = x[j] * x[j];
    return;
  }
  const float spread = SumOfSquares({x, count}) * (2.0f / static_cast<float>(count));
  WeighByImportance({x, count}, {importance, count}, spread, {weights, count});
}

void EncodeGroup(const float* x, float scale, uint8_t qs[16]) {
  const float inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
  for (int j = 0; j < 16; ++j) {
    qs[j] = static_cast<uint8_t>(NearestValue(inverse * x[j]) |
                                 (NearestValue(inverse * x[j + 16]) << 4));
  }
}

void DecodeGroup(const uint8_t qs[16], float scale, float* y) {
  for (int j = 0; j < 16; ++j) {
    y[j] = scale * static_cast<float>(kIq4Values[qs[j] & 15]);
    y[j + 16] = scale * static_cast<float>(kIq4Values[qs[j] >> 4]);
  }
}

// A row of blocks, each with a spread of its own; eight are searched side by side.
void EncodeNlRow(const float* src, const float* importance, std::byte* dst, size_t count) {
  float weights[kGroup * kGroups];
  float scales[kGroups];
  for (size_t at = 0; at < count;) {
    const size_t left = (count - at) / kGroup;
    const size_t groups = left < kGroups ? 1 : kGroups;
    for (size_t g = 0; g < groups; ++g) {
      const size_t first = at + g * kGroup;
      WeighIq4(src + first, importance != nullptr ? importance + first : nullptr, kGroup,
               weights + g * kGroup);
    }
    if (groups == 1) {
      scales[0] = FitIq4Scale(src + at, weights);
    } else {
      FitIq4Scales8(src + at, weights, scales);
    }
    for (size_t g = 0; g < groups; ++g, at += kGroup, dst += sizeof(BlockIq4Nl)) {
      BlockIq4Nl block;
      block.d = F32ToF16(scales[g]);
      EncodeGroup(src + at, scales[g], block.qs);
      std::memcpy(dst, &block, sizeof block);
    }
  }
}

BlockIq4Xs EncodeXsBlock(const float* x, const float* importance) {
  BlockIq4Xs block = {};
  float weights[kGroup * kGroups];
  float scales[kGroups];
  WeighIq4(x, importance, kGroup * kGroups, weights);
  FitIq4Scales8(x, weights, scales);
  const float d = -SignedMax(scales) / 32.0f;
  const float inverse = d != 0.0f ? 1.0f / d : 0.0f;
  block.d = F32ToF16(d);
  for (int g = 0; g < kGroups; ++g) {
    const int scale = std::clamp(NearestInt(inverse * scales[g]), -32, 31);
    EncodeGroup(x + kGroup * g, d * static_cast<float>(scale), block.qs + 16 * g);
    PutIq4XsScale(g, scale, block);
  }
  return block;
}

}  // namespace

float FitIq4Scale(const float* x, const float* weights) {
  const float largest = SignedMax({x, kGroup});
  if (std::fabs(largest) < kGroupMaxEpsilon) return 0.0f;
  constexpr int kTries = 7;
  float scale = 0.0f;
  float best = 0.0f;
  const auto attempt = [&](float inverse, bool first) {
    float sum_qx = 0.0f;
    float sum_q2 = 0.0f;
    for (int j = 0; j < kGroup; ++j) {
      const auto q = static_cast<float>(kIq4Values[NearestValue(inverse * x[j])]);
      sum_qx += weights[j] * q * x[j];
      sum_q2 += weights[j] * q * q;
    }
    if (sum_q2 > 0.0f && (first || sum_qx * sum_qx > best * sum_q2)) {
      scale = sum_qx / sum_q2;
      best = scale * sum_qx;
    }
  };
  const auto lowest = static_cast<float>(kIq4Values[0]);
  attempt(1.0f / (-largest / lowest), true);
  for (int step = -kTries; step <= kTries; ++step) {
    attempt((static_cast<float>(step) + lowest) / largest, false);
  }
  return scale;
}

void PutIq4XsScale(int g, int scale, BlockIq4Xs& block) {
  const auto stored = static_cast<unsigned>(scale + 32);
  block.scales_l[g / 2] =
      static_cast<uint8_t>(block.scales_l[g / 2] | ((stored & 15u) << (4 * (g % 2))));
  block.scales_h = static_cast<uint16_t>(block.scales_h | ((stored >> 4) << (2 * g)));
}

void DecodeIq4Nl(const std::byte* src, float* dst, size_t count) {
  DecodeBlocks<BlockIq4Nl, kGroup>(src, dst, count, [](const BlockIq4Nl& block, float* y) {
    DecodeGroup(block.qs, F16ToF32(block.d), y);
  });
}

void EncodeIq4Nl(const float* src, std::byte* dst, size_t count) {
  EncodeNlRow(src, nullptr, dst, count);
}

void EncodeWeightedIq4Nl(const float* src, const float* importance, std::byte* dst, size_t count) {
  EncodeNlRow(src, importance, dst, count);
}

void DecodeIq4Xs(const std::byte* src, float* dst, size_t count) {
  DecodeBlocks<BlockIq4Xs, 256>(src, dst, count, [](const BlockIq4Xs& block, float* y) {
    const float d = F16ToF32(block.d);
    for (int g = 0; g < kGroups; ++g) {
      const float scale = d * static_cast<float>(Iq4XsScale(block, g));
      DecodeGroup(block.qs + 16 * g, scale, y + kGroup * g);
    }
  });
}

void EncodeIq4Xs(const float* src, std::byte* dst, size_t count) {
  EncodeBlocks<BlockIq4Xs, 256>(src, dst, count,
                                [](const float* x) { return EncodeXsBlock(x, nullptr); });
}

void EncodeWeightedIq4Xs(const float* src, const float* importance, std::byte* dst, size_t count) {
  EncodeBlocks<BlockIq4Xs, 256>(
      src, dst, count, [&](const float* x) { return EncodeXsBlock(x, importance + (x - src)); });
}

}  // namespace nibble
