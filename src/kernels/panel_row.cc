#include "kernels/panel_row.h"

#include "format/small_float.h"
#include "kernels/panel_codes.h"

namespace nibble {
namespace {

float DecodeFloat(Format format, const uint8_t* element) {
  if (format == Format::kF8E4M3) return F8E4M3ToF32(*element);
  if (format == Format::kF8E5M2) return F8E5M2ToF32(*element);
  if (format == Format::kF32) {
    float value = 0;
    __builtin_memcpy(&value, element, sizeof value);
    return value;
  }
  uint16_t half = 0;
  __builtin_memcpy(&half, element, sizeof half);
  return format == Format::kF16 ? F16ToF32(half) : BF16ToF32(half);
}

}  // namespace

void PanelRow::Values(int chunk_index, int group32, int16_t values[32]) const {
  uint8_t codes[32];
  LoadCodes(layout.planes,
            chunk(chunk_index) + layout.side_bytes() + layout.group32_bytes() * group32, row,
            codes);
  ValuesOfCodes(layout, codes, values);
  if (!layout.has_zero()) return;
  const int zero = Side(chunk_index).zero;
  for (int k = 0; k < 32; ++k) values[k] = static_cast<int16_t>(values[k] - zero);
}

void PanelRow::Decode(int cols, float* dst) const {
  if (layout.planes == CodePlanes::kFloat) {
    const int element = layout.chunk_bytes / kPanelRows;
    for (int k = 0; k < cols; ++k) dst[k] = DecodeFloat(format, chunk(k) + row * element);
    return;
  }
  for (int c = 0; c < cols / layout.block; ++c) {
    const RowSide side = Side(c);
    for (int begin = 0; begin < layout.block; begin += 32) {
      int16_t values[32];
      Values(c, begin / 32, values);
      for (int i = 0; i < 32; ++i) {
        const int g = (begin + i) / layout.group;
        const float product = static_cast<float>(values[i]) * ScaleOf(layout.side, side, g);
        *dst++ = layout.has_min() ? product + MinOf(layout.side, side, g) : product;
      }
    }
  }
}

}  // namespace nibble
