#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "container/hf_linear.h"
#include "container/packed_codes.h"
#include "format/small_float.h"

namespace nibble {

// Single numbers of a quantised linear, wherever its layout has them. The linear has been checked.
class HfValues {
 public:
  explicit HfValues(const HfLinear& linear)
      : linear_(linear),
        rows_(static_cast<size_t>(linear.rows)),
        cols_(static_cast<size_t>(linear.cols)),
        groups_(static_cast<size_t>(linear.groups)) {}

  // Of row r and group g.
  float Scale(int r, int g) const {
    const auto row = static_cast<size_t>(r);
    const auto group = static_cast<size_t>(g);
    if (ByGroup()) return ScaleAt(group * rows_ + row);
    return ScaleAt(row / static_cast<size_t>(linear_.block_rows) * groups_ + group);
  }

  int Zero(int r, int g) const {
    const auto row = static_cast<size_t>(r);
    const auto group = static_cast<size_t>(g);
    const int bits = linear_.bits;
    if (linear_.parts.zeros == nullptr) return 1 << (bits - 1);
    const std::byte* zeros = linear_.parts.zeros->bytes.data();
    switch (linear_.layout) {
      case HfLayout::kGptq:
      case HfLayout::kGptqV2: {
        const size_t words = PackedCodesView::Words(rows_, bits);
        const int stored = PackedCodesView(zeros + group * words * 4, 1, bits).Get(row);
        const int offset = linear_.layout == HfLayout::kGptq ? 1 : 0;
        return (stored + offset) & ((1 << bits) - 1);
      }
      case HfLayout::kAwq:
        return AwqCode(zeros, group, row);
      case HfLayout::kPackQuantized:
        return PackedCodesView(zeros + group * 4, groups_, bits).Get(row);
      default:
        return std::to_integer<int>(
            zeros[row / static_cast<size_t>(linear_.block_rows) * groups_ + group] ^
            std::byte{0x80});
    }
  }

  // Codes 0 … 2^bits − 1 of a row [cols], inputs in their own order. FP8: the bytes.
  void RowCodes(int r, uint8_t* out) const {
    const auto row = static_cast<size_t>(r);
    const int bits = linear_.bits;
    const std::byte* codes = linear_.parts.codes->bytes.data();
    switch (linear_.layout) {
      case HfLayout::kGptq:
      case HfLayout::kGptqV2:
        return PackedCodesView(codes + row * 4, rows_, bits).GetAll(cols_, out);
      case HfLayout::kAwq:
        for (size_t c = 0; c < cols_; ++c) out[c] = AwqCode(codes, c, row);
        return;
      case HfLayout::kPackQuantized: {
        const size_t words = PackedCodesView::Words(cols_, bits);
        return PackedCodesView(codes + row * words * 4, 1, bits).GetAll(cols_, out);
      }
      case HfLayout::kFloatQuantized:
        std::memcpy(out, codes + row * cols_, cols_);
        return;
      case HfLayout::kIntQuantized:
      case HfLayout::kLlmInt8:
        for (size_t c = 0; c < cols_; ++c) {
          out[c] = static_cast<uint8_t>(codes[row * cols_ + c] ^ std::byte{0x80});
        }
        return;
    }
  }

  // Group of input c.
  int GroupOf(int c) const {
    if (linear_.parts.groups == nullptr) return c / linear_.group;
    int32_t g = 0;
    std::memcpy(&g, linear_.parts.groups->bytes.data() + static_cast<size_t>(c) * 4, sizeof g);
    return g;
  }

  // A power of two near the row's largest scale; 1 where it has none.
  float PowerOfRow(int r) const {
    float largest = 0;
    for (int g = 0; g < linear_.groups; ++g) largest = std::fmax(largest, std::fabs(Scale(r, g)));
    if (!(largest > 0x1p-100F) || !(largest < 0x1p100F)) return 1;
    return std::ldexp(1.0F, std::ilogb(largest));
  }

 private:
  bool ByGroup() const {
    return linear_.layout == HfLayout::kGptq || linear_.layout == HfLayout::kGptqV2 ||
           linear_.layout == HfLayout::kAwq;
  }
  float ScaleAt(size_t index) const {
    const SourceTensor& scales = *linear_.parts.scales;
    if (scales.type_name == "F32") {
      float value = 0;
      std::memcpy(&value, scales.bytes.data() + index * sizeof value, sizeof value);
      return linear_.layout == HfLayout::kLlmInt8 ? value / 127.0F : value;
    }
    uint16_t half = 0;
    std::memcpy(&half, scales.bytes.data() + index * sizeof half, sizeof half);
    const float value = scales.type_name == "F16" ? F16ToF32(half) : BF16ToF32(half);
    return linear_.layout == HfLayout::kLlmInt8 ? value / 127.0F : value;
  }
  // Output `row` of line `line` of AWQ's words.
  uint8_t AwqCode(const std::byte* words, size_t line, size_t row) const {
    uint32_t word = 0;
    std::memcpy(&word, words + (line * (rows_ / 8) + row / 8) * 4, sizeof word);
    return static_cast<uint8_t>(word >> (4 * kAwqNibble[row % 8]) & 15);
  }

  const HfLinear& linear_;
  size_t rows_;
  size_t cols_;
  size_t groups_;
};

}  // namespace nibble
