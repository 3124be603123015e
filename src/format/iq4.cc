#include "format/iq4.h"

#include <algorithm>
#include <cmath>

#include "format/block_io.h"
#include "format/scale_search.h"
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

// The scale d of one group that maximises (Σ w·q·x)² / Σ w·q², q the table's value nearest to
// x / d: for fixed codes the least squares optimum of Σ w·(x − d·q)². Tries the largest element on
// the steps −127 ± 7 and takes the best, as ggml's quantize_row_iq4_nl_impl. weights: [32].
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

// The scales of groups that share a spread: count / 32 of them. importance: [count], or null.
void FitIq4Scales(const float* x, const float* importance, int count, float* scales) {
  const auto all = static_cast<size_t>(count);
  const float spread = SumOfSquares({x, all}) * (2.0f / static_cast<float>(count));
  for (size_t at = 0; at < all; at += kGroup) {
    const std::span<const float> group(x + at, kGroup);
    float weights[kGroup];
    if (importance != nullptr) {
      WeighByImportance(group, {importance + at, kGroup}, spread, weights);
    } else {
      for (size_t j = 0; j < kGroup; ++j) weights[j] = group[j] * group[j];
    }
    scales[at / kGroup] = FitIq4Scale(group.data(), weights);
  }
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

BlockIq4Nl EncodeNlBlock(const float* x, const float* importance) {
  BlockIq4Nl block;
  float scale = 0.0f;
  FitIq4Scales(x, importance, kGroup, &scale);
  block.d = F32ToF16(scale);
  EncodeGroup(x, scale, block.qs);
  return block;
}

BlockIq4Xs EncodeXsBlock(const float* x, const float* importance) {
  BlockIq4Xs block = {};
  float scales[kGroups];
  FitIq4Scales(x, importance, kGroup * kGroups, scales);
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
  EncodeBlocks<BlockIq4Nl, kGroup>(src, dst, count,
                                   [](const float* x) { return EncodeNlBlock(x, nullptr); });
}

void EncodeWeightedIq4Nl(const float* src, const float* importance, std::byte* dst, size_t count) {
  EncodeBlocks<BlockIq4Nl, kGroup>(
      src, dst, count, [&](const float* x) { return EncodeNlBlock(x, importance + (x - src)); });
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
