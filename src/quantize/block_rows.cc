#include "quantize/block_rows.h"

#include <cmath>
#include <limits>

namespace nibble {
namespace {

// Nearest entry of a rising table.
uint8_t NearestEntry(std::span<const int8_t> table, float level) {
  size_t above = 1;
  while (above + 1 < table.size() && static_cast<float>(table[above]) < level) ++above;
  const float low = level - static_cast<float>(table[above - 1]);
  const float high = static_cast<float>(table[above]) - level;
  return static_cast<uint8_t>(low < high ? above - 1 : above);
}

float GroupCost(const BlockRows& rows, std::span<const float> x, std::span<const float> costs,
                float scale, float min) {
  float cost = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const uint8_t code = rows.CodeOf(x[i], scale, min);
    const float error = scale * rows.Level(code) - min - x[i];
    cost += costs[i] * error * error;
  }
  return cost;
}

}  // namespace

uint8_t BlockRows::CodeOf(float x, float scale, float min) const {
  const BlockShape& shape = shape_;
  if (!shape.table.empty()) return NearestEntry(shape.table, scale != 0 ? (x + min) / scale : 0);
  if (scale == 0) return static_cast<uint8_t>(shape.zero);
  constexpr float kMagic = 12582912.0f;  // 1.5 · 2^23: adding it rounds to even
  const auto lowest = static_cast<float>(shape.largest_code == 255 ? 1 - shape.zero : -shape.zero);
  const auto highest = static_cast<float>(shape.largest_code - shape.zero);
  const float level = std::clamp((x + min) / scale, lowest, highest);
  return static_cast<uint8_t>(static_cast<int>((level + kMagic) - kMagic) + shape.zero);
}

void BlockRows::Join(int lane, std::byte* row) const {
  const auto bytes = static_cast<size_t>(TraitsOf(format_).block_bytes);
  for (int b = 0; b < blocks_; ++b) {
    JoinBlock(
        format_,
        parts_[static_cast<size_t>(lane) * static_cast<size_t>(blocks_) + static_cast<size_t>(b)],
        row + static_cast<size_t>(b) * bytes);
  }
}

BlockParts FitBlock(Format format, std::span<const float> x, std::span<const float> costs) {
  const FormatTraits& traits = TraitsOf(format);
  std::byte bytes[256];  // the largest block has 210
  if (traits.encode_weighted != nullptr) {
    traits.encode_weighted(x.data(), costs.data(), bytes, x.size());
  } else {
    traits.encode(x.data(), bytes, x.size());
  }
  return SplitBlock(format, bytes);
}

void RefitGroup(const BlockRows& rows, int group, std::span<const float> x,
                std::span<const float> costs, BlockParts& parts) {
  const BlockShape& shape = rows.shape();
  auto scale = static_cast<int>(parts.scales[static_cast<size_t>(group)]);
  auto min = static_cast<int>(parts.mins[static_cast<size_t>(group)]);
  const auto cost_of = [&](int s, int m) {
    return GroupCost(rows, x, costs, parts.d * static_cast<float>(s),
                     parts.min * static_cast<float>(m));
  };
  float least = cost_of(scale, min);
  constexpr int kSteps = 8;
  for (int step = 0; step < kSteps; ++step) {
    const int from_scale = scale;
    const int from_min = min;
    for (int s = from_scale - 1; s <= from_scale + 1; ++s) {
      for (int m = from_min - 1; m <= from_min + 1; ++m) {
        if (s < shape.lowest_scale || s > shape.largest_scale || m < 0 || m > shape.largest_min) {
          continue;
        }
        if (s == from_scale && m == from_min) continue;
        const float cost = cost_of(s, m);
        if (cost < least) {
          least = cost;
          scale = s;
          min = m;
        }
      }
    }
    if (scale == from_scale && min == from_min) break;
  }
  parts.scales[static_cast<size_t>(group)] = static_cast<int8_t>(scale);
  parts.mins[static_cast<size_t>(group)] = static_cast<uint8_t>(min);
}

}  // namespace nibble
