// Encoders of the first block formats with an importance for every column. After
// quantize_row_q*_impl of ggml-quants.c: the spread of the whole row counts, the codes are those
// the search ended with.
#include <cstring>

#include "format/block_io.h"
#include "format/legacy_quants.h"
#include "format/scale_search.h"
#include "format/scale_search_lanes.h"
#include "format/small_float.h"

namespace nibble {
namespace {

constexpr size_t kWeightedBlock = 32;

// Calls encode with groups of a row and the weights of their errors: eight side by side, or one.
// encode(x, weights, groups) puts its blocks where it wants.
template <class EncodeGroups>
void ForGroups(const float* src, const float* importance, size_t count, EncodeGroups encode) {
  const float spread = SumOfSquares({src, count}) / static_cast<float>(count);
  float weights[kSearchLanes * kWeightedBlock];
  for (size_t at = 0; at < count;) {
    const size_t left = (count - at) / kWeightedBlock;
    const size_t groups = left < kSearchLanes ? 1 : kSearchLanes;
    const size_t size = groups * kWeightedBlock;
    WeighByImportance({src + at, size}, {importance + at, size}, spread, {weights, size});
    encode(src + at, weights, groups);
    at += size;
  }
}

template <class Block>
void PackCodes(const uint8_t codes[kWeightedBlock], Block& block) {
  PackNibbles(codes, block.qs);
  if constexpr (requires { block.qh; }) PackHighBits(codes, block.qh);
}

template <class Block>
std::byte* Append(const Block& block, std::byte* dst) {
  std::memcpy(dst, &block, sizeof block);
  return dst + sizeof block;
}

// Codes 0 … 2 zero − 1, of which `zero` stands for 0.
template <class Block, int kZero>
void EncodeSymmetric(const float* src, const float* importance, std::byte* dst, size_t count) {
  ForGroups(src, importance, count, [&](const float* x, const float* weights, size_t groups) {
    uint8_t codes[kSearchLanes * kWeightedBlock];
    float scales[kSearchLanes];
    if (groups == 1) {
      scales[0] = FitSymmetric({x, kWeightedBlock}, {weights, kWeightedBlock}, kZero, codes);
    } else {
      FitSymmetric8(x, weights, kWeightedBlock, kZero, codes, scales);
    }
    for (size_t g = 0; g < groups; ++g) {
      Block block;
      block.d = F32ToF16(scales[g]);
      PackCodes(codes + g * kWeightedBlock, block);
      dst = Append(block, dst);
    }
  });
}

template <class Block, int kLargestCode>
void EncodeAffine(const float* src, const float* importance, std::byte* dst, size_t count) {
  static constexpr AffineSearch kSearch = {.largest_code = kLargestCode,
                                           .first = -0.9f,
                                           .step = 0.05f,
                                           .steps = 36,
                                           .absolute_error = false};
  ForGroups(src, importance, count, [&](const float* x, const float* weights, size_t groups) {
    uint8_t codes[kSearchLanes * kWeightedBlock];
    AffineFit fits[kSearchLanes];
    if (groups == 1) {
      fits[0] = FitAffine({x, kWeightedBlock}, {weights, kWeightedBlock}, kSearch, codes);
    } else {
      FitAffine8(x, weights, kWeightedBlock, kSearch, codes, fits);
    }
    for (size_t g = 0; g < groups; ++g) {
      Block block;
      block.d = F32ToF16(fits[g].scale);
      block.m = F32ToF16(-fits[g].min);
      PackCodes(codes + g * kWeightedBlock, block);
      dst = Append(block, dst);
    }
  });
}

}  // namespace

void EncodeWeightedQ4_0(const float* src, const float* importance, std::byte* dst, size_t count) {
  EncodeSymmetric<BlockQ4_0, 8>(src, importance, dst, count);
}

void EncodeWeightedQ4_1(const float* src, const float* importance, std::byte* dst, size_t count) {
  EncodeAffine<BlockQ4_1, 15>(src, importance, dst, count);
}

void EncodeWeightedQ5_0(const float* src, const float* importance, std::byte* dst, size_t count) {
  EncodeSymmetric<BlockQ5_0, 16>(src, importance, dst, count);
}

void EncodeWeightedQ5_1(const float* src, const float* importance, std::byte* dst, size_t count) {
  EncodeAffine<BlockQ5_1, 31>(src, importance, dst, count);
}

}  // namespace nibble
