#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "format/block_parts.h"
#include "quantize/dense_kernels.h"

namespace nibble {

// 16 rows of blocks while their scales and codes are chosen.
class BlockRows {
 public:
  BlockRows(Format format, int cols)
      : format_(format),
        shape_(*BlockShapeOf(format)),
        blocks_(cols / shape_.elements),
        parts_(static_cast<size_t>(blocks_) * kPanel) {}

  Format format() const { return format_; }
  const BlockShape& shape() const { return shape_; }
  int blocks() const { return blocks_; }
  BlockParts& At(int lane, int block) {
    return parts_[static_cast<size_t>(lane) * static_cast<size_t>(blocks_) +
                  static_cast<size_t>(block)];
  }

  // The level that a code stands for.
  float Level(uint8_t code) const {
    return static_cast<float>(shape_.table.empty() ? int{code} - shape_.zero : shape_.table[code]);
  }
  float ScaleOf(const BlockParts& parts, int group) const {
    return parts.d * static_cast<float>(parts.scales[static_cast<size_t>(group)]);
  }
  float MinOf(const BlockParts& parts, int group) const {
    return parts.min * static_cast<float>(parts.mins[static_cast<size_t>(group)]);
  }
  float Value(const BlockParts& parts, int element) const {
    const int group = element / shape_.group;
    return ScaleOf(parts, group) * Level(parts.codes[static_cast<size_t>(element)]) -
           MinOf(parts, group);
  }

  // The code of scale · level − min that is nearest to x; the code of the level 0 where scale is 0.
  uint8_t CodeOf(float x, float scale, float min) const;

  // The bytes of one row.
  void Join(int lane, std::byte* row) const;

 private:
  Format format_;
  const BlockShape& shape_;
  int blocks_;
  std::vector<BlockParts> parts_;  // [16][blocks]
};

// The parts of a block whose weights are x, scales searched with what an error of each costs.
// x, costs: [elements].
BlockParts FitBlock(Format format, std::span<const float> x, std::span<const float> costs);

// Moves a group's stored scale and min, d and min of the block staying, by steps of one while that
// lowers Σ cost · error². x, costs: [group].
void RefitGroup(const BlockRows& rows, int group, std::span<const float> x,
                std::span<const float> costs, BlockParts& parts);

}  // namespace nibble
