// Encoders of the first block formats with an importance for every column. After
// quantize_row_q*_impl of ggml-quants.c: the spread of the whole row counts, the codes are those
// the search ended with.
#include "format/block_io.h"
#include "format/legacy_quants.h"
#include "format/scale_search.h"
#include "format/small_float.h"

namespace nibble {
namespace {

constexpr size_t kWeightedBlock = 32;

struct WeightedGroup {
  std::span<const float> x;
  float weights[kWeightedBlock];
};

// Calls encode with every block of a row and the weights of its errors.
template <class Block, class EncodeGroup>
void EncodeRow(const float* src, const float* importance, std::byte* dst, size_t count,
               EncodeGroup encode) {
  const float spread = SumOfSquares({src, count}) / static_cast<float>(count);
  EncodeBlocks<Block, kWeightedBlock>(src, dst, count, [&](const float* x) {
    WeightedGroup group = {.x = {x, kWeightedBlock}, .weights = {}};
    WeighByImportance(group.x, {importance + (x - src), kWeightedBlock}, spread, group.weights);
    return encode(group);
  });
}

template <class Block>
void PackCodes(const uint8_t codes[kWeightedBlock], Block& block) {
  PackNibbles(codes, block.qs);
  if constexpr (requires { block.qh; }) PackHighBits(codes, block.qh);
}

// Codes 0 … 2 zero − 1, of which `zero` stands for 0.
template <class Block, int kZero>
void EncodeSymmetric(const float* src, const float* importance, std::byte* dst, size_t count) {
  EncodeRow<Block>(src, importance, dst, count, [](const WeightedGroup& group) {
    Block block;
    uint8_t codes[kWeightedBlock];
    block.d = F32ToF16(FitSymmetric(group.x, group.weights, kZero, codes));
    PackCodes(codes, block);
    return block;
  });
}

template <class Block, int kLargestCode>
void EncodeAffine(const float* src, const float* importance, std::byte* dst, size_t count) {
  static constexpr AffineSearch kSearch = {.largest_code = kLargestCode,
                                           .first = -0.9f,
                                           .step = 0.05f,
                                           .steps = 36,
                                           .absolute_error = false};
  EncodeRow<Block>(src, importance, dst, count, [](const WeightedGroup& group) {
    Block block;
    uint8_t codes[kWeightedBlock];
    const AffineFit fit = FitAffine(group.x, group.weights, kSearch, codes);
    block.d = F32ToF16(fit.scale);
    block.m = F32ToF16(-fit.min);
    PackCodes(codes, block);
    return block;
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
