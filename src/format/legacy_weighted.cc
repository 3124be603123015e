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

AffineFit FitCodes(const WeightedGroup& group, int largest_code, uint8_t codes[kWeightedBlock]) {
  const AffineSearch search = {.largest_code = largest_code,
                               .first = -0.9f,
                               .step = 0.05f,
                               .steps = 36,
                               .absolute_error = false};
  return FitAffine(group.x, group.weights, search, codes);
}

}  // namespace

void EncodeWeightedQ4_0(const float* src, const float* importance, std::byte* dst, size_t count) {
  EncodeRow<BlockQ4_0>(src, importance, dst, count, [](const WeightedGroup& group) {
    BlockQ4_0 block;
    uint8_t codes[kWeightedBlock];
    block.d = F32ToF16(FitSymmetric(group.x, group.weights, 8, codes));
    PackNibbles(codes, block.qs);
    return block;
  });
}

void EncodeWeightedQ4_1(const float* src, const float* importance, std::byte* dst, size_t count) {
  EncodeRow<BlockQ4_1>(src, importance, dst, count, [](const WeightedGroup& group) {
    BlockQ4_1 block;
    uint8_t codes[kWeightedBlock];
    const AffineFit fit = FitCodes(group, 15, codes);
    block.d = F32ToF16(fit.scale);
    block.m = F32ToF16(-fit.min);
    PackNibbles(codes, block.qs);
    return block;
  });
}

void EncodeWeightedQ5_0(const float* src, const float* importance, std::byte* dst, size_t count) {
  EncodeRow<BlockQ5_0>(src, importance, dst, count, [](const WeightedGroup& group) {
    BlockQ5_0 block;
    uint8_t codes[kWeightedBlock];
    block.d = F32ToF16(FitSymmetric(group.x, group.weights, 16, codes));
    PackNibbles(codes, block.qs);
    PackHighBits(codes, block.qh);
    return block;
  });
}

void EncodeWeightedQ5_1(const float* src, const float* importance, std::byte* dst, size_t count) {
  EncodeRow<BlockQ5_1>(src, importance, dst, count, [](const WeightedGroup& group) {
    BlockQ5_1 block;
    uint8_t codes[kWeightedBlock];
    const AffineFit fit = FitCodes(group, 31, codes);
    block.d = F32ToF16(fit.scale);
    block.m = F32ToF16(-fit.min);
    PackNibbles(codes, block.qs);
    PackHighBits(codes, block.qh);
    return block;
  });
}

}  // namespace nibble
