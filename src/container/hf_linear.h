#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "container/hf_scheme.h"
#include "container/tensor_source.h"
#include "format/format.h"

namespace nibble {

// The tensors of a quantised linear in a checkpoint; null where the layout has none.
struct HfParts {
  const SourceTensor* codes = nullptr;   // qweight, weight_packed or weight
  const SourceTensor* scales = nullptr;  // scales, weight_scale or SCB
  const SourceTensor* zeros = nullptr;   // qzeros or weight_zero_point
  const SourceTensor* groups = nullptr;  // g_idx or weight_g_idx
  const SourceTensor* shape = nullptr;   // weight_shape
};

// What the configuration says; shapes decide where they can.
struct HfHints {
  int bits = 0;          // 0: not said
  int group = 0;         // inputs that share a scale; 0: a row, or not said
  int block_rows = 128;  // FP8 with scales per block
  int block_cols = 128;
};

// How a linear's input is computed, by the checkpoint's own wish.
struct HfInput {
  enum class Kind : uint8_t { kUsual, kInt8Token, kInt8Static, kInt8Outliers, kF8Token, kF8Static };
  Kind kind = Kind::kUsual;
  float scale = 0;      // of the static kinds
  float threshold = 0;  // kInt8Outliers
};

// A quantised linear of a Hugging Face checkpoint, checked: how its tensors lie, and the format in
// which nibble computes with it. Views into the file.
struct HfLinear {
  HfLayout layout = HfLayout::kGptq;
  HfParts parts;
  int rows = 0;  // outputs
  int cols = 0;  // inputs
  int bits = 4;
  int group = 0;  // inputs that share a scale
  int groups = 1;
  int block_rows = 1;  // outputs that share a scale

  // kW4G… or kW8G… (codes as they are: 2 and 3 bits in 4), kF8E4M3, or kF32: decoded, because no
  // group of 32 divides the inputs, an f32 scale is not exact in f16, or FP8's blocks are narrow.
  Format format = Format::kF32;
  bool row_scales = false;     // HfRowScales are applied behind the product
  bool block_scales = false;   // FP8: Scale of `group` inputs x `block_rows` outputs, before it
  std::vector<int32_t> order;  // [cols] inputs sorted by group; empty: they are
  HfInput input = {};

  uint64_t StoredBytes() const;  // of all parts
};

// Checks the tensors against each other and chooses the format. Reads the scales of other types
// than f16, and the groups. Errors: a shape or type that the layout does not have, a group that
// does not exist.
Result<HfLinear> ReadHfLinear(HfLayout layout, const HfParts& parts, const HfHints& hints);

// Rows [first, first + count) in linear.format, inputs in linear.order:
// TraitsOf(format).RowBytes(cols) bytes each.
void DecodeHfRows(const HfLinear& linear, int first, int count, std::byte* dst);
// What those rows are to be multiplied by.
void HfRowScales(const HfLinear& linear, int first, int count, float* dst);
// What their inputs [block · group, (block + 1) · group) are multiplied by, with block_scales.
void HfBlockScales(const HfLinear& linear, int block, int first, int count, float* dst);
// The same rows as floats, inputs in their own order: the layout's definition, each product rounded
// once. dst [count][cols].
void DequantiseHfRows(const HfLinear& linear, int first, int count, float* dst);

// Rows of any stored matrix as floats; tensor.format must be there.
void ReadRows(const SourceTensor& tensor, uint64_t first, uint64_t count, float* dst);

// For people: "gptq, 4 bits, groups of 128, inputs reordered, int8 per token".
std::string DescribeHfLinear(const HfLinear& linear);

}  // namespace nibble
