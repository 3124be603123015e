#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "container/hf_linear.h"
#include "container/hf_linear_values.h"
#include "format/grouped_quants.h"

namespace nibble {
namespace {

// A scale of a row without what HfRowScales gives back, as an f16: exact by the choice of format.
uint16_t BlockScale(float scale, float row_scale) {
  if (scale == row_scale) return F32ToF16(1.0F);  // a scale of 0 among them: 0 · 1
  return F32ToF16(scale / row_scale);
}

float RowScale(const HfLinear& linear, const HfValues& values, int r) {
  if (!linear.row_scales) return 1;
  return linear.groups == 1 ? values.Scale(r, 0) : values.PowerOfRow(r);
}

void DecodeGroupedRow(const HfLinear& linear, const HfValues& values, int r, uint8_t* scratch,
                      std::byte* dst) {
  const auto cols = static_cast<size_t>(linear.cols);
  uint8_t* codes = scratch;
  values.RowCodes(r, codes);
  if (!linear.order.empty()) {
    uint8_t* sorted = scratch + cols;
    for (size_t c = 0; c < cols; ++c) sorted[c] = codes[static_cast<size_t>(linear.order[c])];
    codes = sorted;
  }
  const FormatTraits& traits = TraitsOf(linear.format);
  const float row_scale = RowScale(linear, values, r);
  for (int c = 0; c < linear.cols; c += traits.block_elements) {
    const int g = c / linear.group;
    PutGroupedBlock(linear.format, BlockScale(values.Scale(r, g), row_scale),
                    static_cast<uint8_t>(values.Zero(r, g)), codes + c, dst);
    dst += traits.block_bytes;
  }
}

void DequantiseRow(const HfLinear& linear, const HfValues& values, int r, uint8_t* codes,
                   float* dst) {
  values.RowCodes(r, codes);
  const bool f8 = linear.layout == HfLayout::kFloatQuantized;
  for (int c = 0; c < linear.cols; ++c) {
    const int g = values.GroupOf(c);
    const float value =
        f8 ? F8E4M3ToF32(codes[c]) : static_cast<float>(codes[c] - values.Zero(r, g));
    dst[c] = value * values.Scale(r, g);
  }
}

}  // namespace

void DequantiseHfRows(const HfLinear& linear, int first, int count, float* dst) {
  const HfValues values(linear);
  std::vector<uint8_t> codes(static_cast<size_t>(linear.cols));
  for (int r = first; r < first + count; ++r, dst += linear.cols) {
    DequantiseRow(linear, values, r, codes.data(), dst);
  }
}

void DecodeHfRows(const HfLinear& linear, int first, int count, std::byte* dst) {
  const auto cols = static_cast<size_t>(linear.cols);
  const size_t row_bytes = TraitsOf(linear.format).RowBytes(cols);
  const HfValues values(linear);
  std::vector<uint8_t> scratch(2 * cols);
  std::vector<float> floats(linear.format == Format::kF32 ? cols : 0);
  for (int r = first; r < first + count; ++r, dst += row_bytes) {
    if (linear.format == Format::kF32) {
      DequantiseRow(linear, values, r, scratch.data(), floats.data());
      std::memcpy(dst, floats.data(), row_bytes);
    } else if (linear.format == Format::kF8E4M3) {
      values.RowCodes(r, scratch.data());
      std::memcpy(dst, scratch.data(), row_bytes);
    } else {
      DecodeGroupedRow(linear, values, r, scratch.data(), dst);
    }
  }
}

void ReadRows(const SourceTensor& tensor, uint64_t first, uint64_t count, float* dst) {
  if (tensor.linear != nullptr) {
    return DequantiseHfRows(*tensor.linear, static_cast<int>(first), static_cast<int>(count), dst);
  }
  const FormatTraits& traits = TraitsOf(*tensor.format);
  const size_t cols = tensor.cols();
  traits.decode(tensor.bytes.data() + first * traits.RowBytes(cols), dst, count * cols);
}

std::string DescribeHfLinear(const HfLinear& linear) {
  std::string text(HfLayoutName(linear.layout));
  if (linear.layout != HfLayout::kFloatQuantized) {
    text += fmt::format(", {} bits", linear.bits);
  }
  if (linear.groups > 1) {
    text += fmt::format(", groups of {}", linear.group);
  } else {
    text += linear.block_rows > 1 ? ", one scale" : ", a scale per row";
  }
  if (linear.block_rows > 1 && linear.block_rows < linear.rows) {
    text += fmt::format(" x {}", linear.block_rows);
  }
  if (!linear.order.empty()) text += ", inputs reordered";
  using Kind = HfInput::Kind;
  switch (linear.input.kind) {
    case Kind::kUsual:
      break;
    case Kind::kInt8Token:
      text += ", inputs int8 per token";
      break;
    case Kind::kInt8Static:
      text += fmt::format(", inputs int8 · {:g}", linear.input.scale);
      break;
    case Kind::kInt8Outliers:
      text += fmt::format(", inputs int8 below {:g}", linear.input.threshold);
      break;
    case Kind::kF8Token:
      text += ", inputs rounded to FP8 per token";
      break;
    case Kind::kF8Static:
      text += fmt::format(", inputs rounded to FP8 · {:g}", linear.input.scale);
      break;
  }
  if (linear.format == Format::kF32) text += "; decoded";
  return text;
}

void HfBlockScales(const HfLinear& linear, int block, int first, int count, float* dst) {
  const HfValues values(linear);
  for (int r = 0; r < count; ++r) dst[r] = values.Scale(first + r, block);
}

void HfRowScales(const HfLinear& linear, int first, int count, float* dst) {
  const HfValues values(linear);
  for (int r = 0; r < count; ++r) dst[r] = RowScale(linear, values, first + r);
}

}  // namespace nibble
