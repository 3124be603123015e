// Encoders of the k-quants: a scale (and minimum) searched per group, those quantised over the
// super-block, then the codes rounded with the scales as stored. After quantize_row_q*_K_ref of
// ggml-quants.c, and with an importance for every column after quantize_row_q*_K_impl. A group
// whose stored scale is zero keeps the codes of its search, which mean nothing, as ggml's does.
#include <algorithm>
#include <array>
#include <cmath>

#include "format/block_io.h"
#include "format/kquants.h"
#include "format/scale_search.h"
#include "format/scale_search_lanes.h"
#include "format/small_float.h"

namespace nibble {
namespace {

using Codes = std::array<uint8_t, kSuperBlock>;

// What the search is with an importance.
constexpr AffineSearch ImportanceSearch(int largest_code) {
  return {.largest_code = largest_code,
          .first = -0.9f,
          .step = 0.05f,
          .steps = 36,
          .absolute_error = false};
}

float Sum(std::span<const float> x) {
  float sum = 0.0f;
  for (const float value : x) sum += value;
  return sum;
}

// Rounds x ≈ scale × code − min to 0 … largest; a zero scale leaves the codes.
void RoundCodes(std::span<const float> x, float scale, float min, int largest, uint8_t* codes) {
  if (scale == 0.0f) return;
  for (size_t i = 0; i < x.size(); ++i) {
    const int code = NearestInt((x[i] + min) / scale);
    codes[i] = static_cast<uint8_t>(std::clamp(code, 0, largest));
  }
}

// Rounds x ≈ scale × (code − offset); a zero scale leaves the codes.
void RoundSignedCodes(std::span<const float> x, float scale, int offset, uint8_t* codes) {
  if (scale == 0.0f) return;
  for (size_t i = 0; i < x.size(); ++i) {
    const int code = NearestInt(x[i] / scale);
    codes[i] = static_cast<uint8_t>(std::clamp(code, -offset, offset - 1) + offset);
  }
}

// Unsigned levels of positive values: value ≈ d × level, d the largest value / levels.
template <size_t kCount>
struct Levels {
  float d = 0.0f;
  std::array<uint8_t, kCount> level = {};
};
template <size_t kCount>
Levels<kCount> QuantizeLevels(const std::array<float, kCount>& values, int levels) {
  Levels<kCount> result;
  const float largest = *std::max_element(values.begin(), values.end());
  if (!(largest > 0.0f)) return result;
  const auto top = static_cast<float>(levels);
  const float inverse = top / largest;
  for (size_t g = 0; g < kCount; ++g) {
    result.level[g] = static_cast<uint8_t>(std::clamp(NearestInt(inverse * values[g]), 0, levels));
  }
  result.d = largest / top;
  return result;
}

// Scale and minimum of every group, and what its errors cost together.
template <size_t kCount>
struct AffineGroups {
  std::array<float, kCount> scales;
  std::array<float, kCount> mins;
  std::array<float, kCount> costs;
};

// Fills all of them; codes are those that the searches ended with.
template <size_t kCount>
void FitGroups(const float* x, const std::array<float, kSuperBlock>& weights,
               const AffineSearch& search, AffineGroups<kCount>& groups, Codes& codes) {
  constexpr size_t kSize = kSuperBlock / kCount;
  AffineFit fits[kCount];
  for (size_t g = 0; g < kCount; g += kSearchLanes) {
    FitAffine8(x + g * kSize, weights.data() + g * kSize, kSize, search, codes.data() + g * kSize,
               fits + g);
  }
  for (size_t g = 0; g < kCount; ++g) {
    groups.scales[g] = fits[g].scale;
    groups.mins[g] = fits[g].min;
    groups.costs[g] = Sum({weights.data() + g * kSize, kSize});
  }
}

// The levels of one of them.
template <size_t kCount>
Levels<kCount> LevelsOf(const std::array<float, kCount>& values, int levels,
                        const std::array<float, kCount>* costs) {
  if (costs == nullptr) return QuantizeLevels(values, levels);
  Levels<kCount> result;
  result.d = FitLevels(values, *costs, levels, result.level.data());
  return result;
}

// What Q4_K and Q5_K share: fills d, dmin and scales, returns the codes. Without an importance an
// element's weight is its magnitude plus the root mean square of its group.
template <class Block>
Codes EncodeScaleMinBlock(const float* x, const float* importance, const AffineSearch& search,
                          Block& block) {
  AffineGroups<8> groups;
  Codes codes;
  const float spread = 2.0f * SumOfSquares({x, kSuperBlock}) / float{kSuperBlock};
  std::array<float, kSuperBlock> weights;
  if (importance != nullptr) {
    WeighByImportance({x, kSuperBlock}, {importance, kSuperBlock}, spread, weights);
  } else {
    for (size_t g = 0; g < 8; ++g) {
      const std::span<const float> group(x + 32 * g, 32);
      const float rms = std::sqrt(SumOfSquares(group) / 32.0f);
      for (size_t l = 0; l < 32; ++l) weights[32 * g + l] = rms + std::fabs(group[l]);
    }
  }
  FitGroups(x, weights, importance != nullptr ? ImportanceSearch(search.largest_code) : search,
            groups, codes);
  const auto* costs = importance != nullptr ? &groups.costs : nullptr;
  const Levels<8> scale_levels = LevelsOf(groups.scales, 63, costs);
  const Levels<8> min_levels = LevelsOf(groups.mins, 63, costs);
  block.d = F32ToF16(scale_levels.d);
  block.dmin = F32ToF16(min_levels.d);
  for (size_t g = 0; g < 8; ++g) {
    PutScaleMin(static_cast<int>(g), {scale_levels.level[g], min_levels.level[g]}, block.scales);
    const float scale = F16ToF32(block.d) * static_cast<float>(scale_levels.level[g]);
    const float min = F16ToF32(block.dmin) * static_cast<float>(min_levels.level[g]);
    RoundCodes({x + 32 * g, 32}, scale, min, search.largest_code, codes.data() + 32 * g);
  }
  return codes;
}

AffineGroups<16> FitQ2KGroups(const float* x, const float* importance, Codes& codes) {
  constexpr AffineSearch kSearch = {
      .largest_code = 3, .first = -0.5f, .step = 0.1f, .steps = 15, .absolute_error = true};
  const float spread = SumOfSquares({x, kSuperBlock}) / float{kSuperBlock};
  AffineGroups<16> groups;
  std::array<float, kSuperBlock> weights;
  if (importance != nullptr) {
    WeighByImportance({x, kSuperBlock}, {importance, kSuperBlock}, spread, weights);
  } else {
    for (size_t l = 0; l < kSuperBlock; ++l) weights[l] = std::fabs(x[l]);
  }
  FitGroups(x, weights, importance != nullptr ? ImportanceSearch(3) : kSearch, groups, codes);
  return groups;
}

BlockQ2K EncodeQ2KBlock(const float* x, const float* importance) {
  Codes codes;
  const AffineGroups<16> groups = FitQ2KGroups(x, importance, codes);
  const auto* costs = importance != nullptr ? &groups.costs : nullptr;
  const Levels<16> scale_levels = LevelsOf(groups.scales, 15, costs);
  const Levels<16> min_levels = LevelsOf(groups.mins, 15, costs);
  BlockQ2K block;
  block.d = F32ToF16(scale_levels.d);
  block.dmin = F32ToF16(min_levels.d);
  for (size_t g = 0; g < 16; ++g) {
    block.scales[g] = static_cast<uint8_t>(scale_levels.level[g] | (min_levels.level[g] << 4));
    const float scale = F16ToF32(block.d) * static_cast<float>(scale_levels.level[g]);
    const float min = F16ToF32(block.dmin) * static_cast<float>(min_levels.level[g]);
    RoundCodes({x + 16 * g, 16}, scale, min, 3, codes.data() + 16 * g);
  }
  PutCodes(codes.data(), block);
  return block;
}

// The symmetric scales of 16 groups of 16.
void FitSymmetricGroups(const float* x, const std::array<float, kSuperBlock>& weights, int limit,
                        std::array<float, 16>& scales, Codes& codes) {
  for (size_t g = 0; g < 16; g += kSearchLanes) {
    FitSymmetric8(x + 16 * g, weights.data() + 16 * g, 16, limit, codes.data() + 16 * g,
                  scales.data() + g);
  }
}

// The scales of Q3_K: d × (level − 32).
Levels<16> FitQ3KScales(const float* x, const float* importance, Codes& codes) {
  std::array<float, 16> scales;
  std::array<float, 16> costs;
  const float spread = 2.0f * SumOfSquares({x, kSuperBlock}) / float{kSuperBlock};
  if (importance == nullptr) {
    for (size_t g = 0; g < 16; ++g) {
      scales[g] = FitSymmetricByDescent({x + 16 * g, 16}, 4, codes.data() + 16 * g);
    }
  } else {
    std::array<float, kSuperBlock> weights;
    WeighByImportance({x, kSuperBlock}, {importance, kSuperBlock}, spread, weights);
    FitSymmetricGroups(x, weights, 4, scales, codes);
    for (size_t g = 0; g < 16; ++g) costs[g] = Sum({weights.data() + 16 * g, 16});
  }
  Levels<16> result;
  if (importance != nullptr) {
    result.d = FitSymmetric(scales, costs, 32, result.level.data());
    return result;
  }
  const float largest = SignedMax(scales);
  if (largest == 0.0f) return result;
  const float inverse = -32.0f / largest;
  for (size_t g = 0; g < 16; ++g) {
    const int level = std::clamp(NearestInt(inverse * scales[g]), -32, 31);
    result.level[g] = static_cast<uint8_t>(level + 32);
  }
  result.d = 1.0f / inverse;
  return result;
}

BlockQ3K EncodeQ3KBlock(const float* x, const float* importance) {
  Codes codes;
  const Levels<16> levels = FitQ3KScales(x, importance, codes);
  BlockQ3K block = {};
  block.d = F32ToF16(levels.d);
  for (size_t g = 0; g < 16; ++g) {
    const int stored = levels.level[g] - 32;
    PutQ3KScale(static_cast<int>(g), stored, block.scales);
    const float scale = F16ToF32(block.d) * static_cast<float>(stored);
    RoundSignedCodes({x + 16 * g, 16}, scale, 4, codes.data() + 16 * g);
  }
  PutCodes(codes.data(), block);
  return block;
}

BlockQ6K EncodeQ6KBlock(const float* x, const float* importance) {
  std::array<float, 16> scales;
  Codes codes;
  std::array<float, kSuperBlock> weights;  // the importance alone, whatever the element
  for (size_t l = 0; l < kSuperBlock; ++l) {
    weights[l] = importance != nullptr ? importance[l] : x[l] * x[l];
  }
  FitSymmetricGroups(x, weights, 32, scales, codes);
  BlockQ6K block = {};
  const float largest = SignedMax(scales);
  if (std::fabs(largest) < kGroupMaxEpsilon) return block;
  const float inverse = -128.0f / largest;
  block.d = F32ToF16(1.0f / inverse);
  for (size_t g = 0; g < 16; ++g) {
    block.scales[g] = static_cast<int8_t>(std::clamp(NearestInt(inverse * scales[g]), -128, 127));
    const float scale = F16ToF32(block.d) * static_cast<float>(block.scales[g]);
    RoundSignedCodes({x + 16 * g, 16}, scale, 32, codes.data() + 16 * g);
  }
  PutCodes(codes.data(), block);
  return block;
}

BlockQ4K EncodeQ4KBlock(const float* x, const float* importance) {
  constexpr AffineSearch kSearch = {
      .largest_code = 15, .first = -1.0f, .step = 0.1f, .steps = 20, .absolute_error = false};
  BlockQ4K block = {};
  const Codes codes = EncodeScaleMinBlock(x, importance, kSearch, block);
  PutCodes(codes.data(), block);
  return block;
}

BlockQ5K EncodeQ5KBlock(const float* x, const float* importance) {
  constexpr AffineSearch kSearch = {
      .largest_code = 31, .first = -0.5f, .step = 0.1f, .steps = 15, .absolute_error = false};
  BlockQ5K block = {};
  const Codes codes = EncodeScaleMinBlock(x, importance, kSearch, block);
  PutCodes(codes.data(), block);
  return block;
}

// A row of super-blocks, with the importance of its columns or without.
template <class Block, Block (*kEncode)(const float*, const float*)>
void EncodeRow(const float* src, const float* importance, std::byte* dst, size_t count) {
  EncodeBlocks<Block, kSuperBlock>(src, dst, count, [&](const float* x) {
    return kEncode(x, importance != nullptr ? importance + (x - src) : nullptr);
  });
}

}  // namespace

void EncodeQ2K(const float* src, std::byte* dst, size_t count) {
  EncodeRow<BlockQ2K, EncodeQ2KBlock>(src, nullptr, dst, count);
}
void EncodeWeightedQ2K(const float* src, const float* importance, std::byte* dst, size_t count) {
  EncodeRow<BlockQ2K, EncodeQ2KBlock>(src, importance, dst, count);
}
void EncodeQ3K(const float* src, std::byte* dst, size_t count) {
  EncodeRow<BlockQ3K, EncodeQ3KBlock>(src, nullptr, dst, count);
}
void EncodeWeightedQ3K(const float* src, const float* importance, std::byte* dst, size_t count) {
  EncodeRow<BlockQ3K, EncodeQ3KBlock>(src, importance, dst, count);
}
void EncodeQ4K(const float* src, std::byte* dst, size_t count) {
  EncodeRow<BlockQ4K, EncodeQ4KBlock>(src, nullptr, dst, count);
}
void EncodeWeightedQ4K(const float* src, const float* importance, std::byte* dst, size_t count) {
  EncodeRow<BlockQ4K, EncodeQ4KBlock>(src, importance, dst, count);
}
void EncodeQ5K(const float* src, std::byte* dst, size_t count) {
  EncodeRow<BlockQ5K, EncodeQ5KBlock>(src, nullptr, dst, count);
}
void EncodeWeightedQ5K(const float* src, const float* importance, std::byte* dst, size_t count) {
  EncodeRow<BlockQ5K, EncodeQ5KBlock>(src, importance, dst, count);
}
void EncodeQ6K(const float* src, std::byte* dst, size_t count) {
  EncodeRow<BlockQ6K, EncodeQ6KBlock>(src, nullptr, dst, count);
}
void EncodeWeightedQ6K(const float* src, const float* importance, std::byte* dst, size_t count) {
  EncodeRow<BlockQ6K, EncodeQ6KBlock>(src, importance, dst, count);
}

}  // namespace nibble
