// With G = H (ŵ − w), a change v of ŵ changes E by 2 v·G + v H v. For a single code that is least
// at ŵ_j − G_j / H_jj, rounded to the grid. For a scale, v is the change times the levels of its
// elements; the quadratic term needs H only within the block.
#include "quantize/block_descent.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "format/small_float.h"

namespace nibble {
namespace {

constexpr size_t kLanes = kPanel;

float StoredF16(float value) { return F16ToF32(F32ToF16Saturating(value)); }

// For a change v = s · level − m of a group, E changes by 2 (s a − m b) + s² p − 2 s m q + m² r.
struct GroupSums {
  float a = 0;
  float b = 0;
  float p = 0;
  float q = 0;
  float r = 0;
  float Gain(float s, float m) const {
    return 2 * (s * a - m * b) + s * s * p - 2 * s * m * q + m * m * r;
  }
};

// The stored scale and min of a group that lower E most, at most two steps each way. False: those
// that it has.
bool StepGroup(const BlockShape& shape, const GroupSums& sums, size_t group, BlockParts& parts) {
  const auto scale = static_cast<int>(parts.scales[group]);
  const auto min = static_cast<int>(parts.mins[group]);
  float least = 0;
  int best_scale = scale;
  int best_min = min;
  const int last_scale = std::min(scale + 2, shape.largest_scale);
  const int last_min = std::min(min + 2, shape.largest_min);
  for (int s = std::max(scale - 2, shape.lowest_scale); s <= last_scale; ++s) {
    for (int m = std::max(min - 2, 0); m <= last_min; ++m) {
      const float gain = sums.Gain(parts.d * static_cast<float>(s - scale),
                                   parts.min * static_cast<float>(m - min));
      if (gain < least) {
        least = gain;
        best_scale = s;
        best_min = m;
      }
    }
  }
  if (best_scale == scale && best_min == min) return false;
  parts.scales[group] = static_cast<int8_t>(best_scale);
  parts.mins[group] = static_cast<uint8_t>(best_min);
  return true;
}

}  // namespace

BlockDescent::BlockDescent(MatrixView<const float> w, const float* h,
                           const std::vector<uint8_t>& dead)
    : w_(w), h_(h), dead_(dead) {
  const auto size = static_cast<size_t>(w.cols) * kLanes;
  target_.resize(size);
  value_.resize(size);
  gradient_.resize(size);
  for (auto* own : {&levels_, &change_, &product_, &ones_product_}) own->resize(256 * kLanes);
}

void BlockDescent::Start(int first_row, BlockRows& rows) {
  lanes_ = std::min(kPanel, w_.rows - first_row);
  std::ranges::fill(target_, 0.0f);
  std::ranges::fill(value_, 0.0f);
  const int elements = rows.shape().elements;
  for (int lane = 0; lane < lanes_; ++lane) {
    const float* row = w_.row(first_row + lane);
    for (int c = 0; c < w_.cols; ++c) {
      const size_t at = static_cast<size_t>(c) * kLanes + static_cast<size_t>(lane);
      target_[at] = dead_[static_cast<size_t>(c)] ? 0.0f : row[c];
      value_[at] = rows.Value(rows.At(lane, c / elements), c % elements);
    }
  }
  std::vector<float> difference(target_.size());
  for (size_t i = 0; i < difference.size(); ++i) difference[i] = target_[i] - value_[i];
  std::ranges::fill(gradient_, 0.0f);
  // G −= H (w − ŵ), 64 columns at a time so that they stay near.
  constexpr int kColumns = 64;
  for (int first = 0; first < w_.cols; first += kColumns) {
    const int count = std::min(kColumns, w_.cols - first);
    DenseKernelsHere().subtract(gradient_.data(),
                                difference.data() + static_cast<size_t>(first) * kLanes, Row(first),
                                w_.cols, count, 0, w_.cols);
  }
}

void BlockDescent::Apply(const float* change, int first, int count) {
  const size_t at = static_cast<size_t>(first) * kLanes;
  std::vector<float>& negated = product_;
  for (size_t i = 0; i < static_cast<size_t>(count) * kLanes; ++i) {
    value_[at + i] += change[i];
    negated[i] = -change[i];
  }
  DenseKernelsHere().subtract(gradient_.data(), negated.data(), Row(first), w_.cols, count, 0,
                              w_.cols);
}

bool BlockDescent::MoveCodes(BlockRows& rows) {
  const BlockShape& shape = rows.shape();
  bool moved = false;
  float change[kPanel];
  for (int c = 0; c < w_.cols; ++c) {
    const float diagonal = Row(c)[c];
    const int block = c / shape.elements;
    const int element = c % shape.elements;
    const int group = element / shape.group;
    bool any = false;
    std::fill_n(change, kPanel, 0.0f);
    for (int lane = 0; lane < lanes_; ++lane) {
      BlockParts& parts = rows.At(lane, block);
      const size_t at = static_cast<size_t>(c) * kLanes + static_cast<size_t>(lane);
      const float scale = rows.ScaleOf(parts, group);
      const float min = rows.MinOf(parts, group);
      const float aim = value_[at] - gradient_[at] / diagonal;
      const uint8_t code = rows.CodeOf(aim, scale, min);
      uint8_t& own = parts.codes[static_cast<size_t>(element)];
      if (code == own) continue;
      const float value = scale * rows.Level(code) - min;
      const float step = value - value_[at];
      // A tie, or rounding: only what lowers the error counts, or it could go round for ever.
      if (!(step * (2 * gradient_[at] + step * diagonal) < 0)) continue;
      own = code;
      change[lane] = step;
      any = true;
    }
    if (any) Apply(change, c, 1);
    moved = moved || any;
  }
  return moved;
}

void BlockDescent::ProductWithin(const float* v, int first, int count) {
  std::fill_n(product_.data(), static_cast<size_t>(count) * kLanes, 0.0f);
  DenseKernelsHere().subtract(product_.data(), v, Row(first) + first, w_.cols, count, 0, count);
}

bool BlockDescent::MoveGroupScales(BlockRows& rows, int block, int group) {
  const BlockShape& shape = rows.shape();
  const int first = block * shape.elements + group * shape.group;
  const auto count = static_cast<size_t>(shape.group);
  for (int lane = 0; lane < kPanel; ++lane) {
    const BlockParts& parts = rows.At(lane, block);
    for (size_t i = 0; i < count; ++i) {
      levels_[i * kLanes + static_cast<size_t>(lane)] =
          rows.Level(parts.codes[static_cast<size_t>(group * shape.group) + i]);
    }
  }
  if (shape.IsAffine()) {
    std::fill_n(change_.data(), count * kLanes, 1.0f);
    ProductWithin(change_.data(), first, shape.group);
    std::copy_n(product_.data(), count * kLanes, ones_product_.data());
  } else {
    std::fill_n(ones_product_.data(), count * kLanes, 0.0f);
  }
  ProductWithin(levels_.data(), first, shape.group);
  std::fill_n(change_.data(), count * kLanes, 0.0f);
  bool any = false;
  for (int lane = 0; lane < lanes_; ++lane) {
    GroupSums sums;
    for (size_t i = 0; i < count; ++i) {
      const size_t at = i * kLanes + static_cast<size_t>(lane);
      const float gradient = gradient_[static_cast<size_t>(first) * kLanes + at];
      sums.a += levels_[at] * gradient;
      sums.b += gradient;
      sums.p -= levels_[at] * product_[at];  // the products are negative: they were subtracted
      sums.q -= levels_[at] * ones_product_[at];
      sums.r -= ones_product_[at];
    }
    BlockParts& parts = rows.At(lane, block);
    if (!StepGroup(shape, sums, static_cast<size_t>(group), parts)) continue;
    any = true;
    for (size_t i = 0; i < count; ++i) {
      const size_t at = i * kLanes + static_cast<size_t>(lane);
      change_[at] = rows.Value(parts, group * shape.group + static_cast<int>(i)) -
                    value_[static_cast<size_t>(first) * kLanes + at];
    }
  }
  if (any) Apply(change_.data(), first, shape.group);
  return any;
}

// d of a block, or its min: least where the derivative is 0, then rounded to f16.
bool BlockDescent::MoveBlockScale(BlockRows& rows, int block, bool min) {
  const BlockShape& shape = rows.shape();
  const int first = block * shape.elements;
  const auto count = static_cast<size_t>(shape.elements);
  for (int lane = 0; lane < kPanel; ++lane) {
    const BlockParts& parts = rows.At(lane, block);
    for (size_t i = 0; i < count; ++i) {
      const size_t group = i / static_cast<size_t>(shape.group);
      levels_[i * kLanes + static_cast<size_t>(lane)] =
          min ? -static_cast<float>(parts.mins[group])
              : static_cast<float>(parts.scales[group]) * rows.Level(parts.codes[i]);
    }
  }
  ProductWithin(levels_.data(), first, shape.elements);
  std::fill_n(change_.data(), count * kLanes, 0.0f);
  bool any = false;
  for (int lane = 0; lane < lanes_; ++lane) {
    float a = 0, p = 0;
    for (size_t i = 0; i < count; ++i) {
      const size_t at = i * kLanes + static_cast<size_t>(lane);
      a += levels_[at] * gradient_[static_cast<size_t>(first) * kLanes + at];
      p -= levels_[at] * product_[at];
    }
    if (!(p > 0)) continue;
    BlockParts& parts = rows.At(lane, block);
    float& own = min ? parts.min : parts.d;
    const float stored = StoredF16(own - a / p);
    const float step = stored - own;
    if (!(step * (2 * a + step * p) < 0)) continue;
    any = true;
    own = stored;
    for (size_t i = 0; i < count; ++i) {
      const size_t at = i * kLanes + static_cast<size_t>(lane);
      change_[at] =
          rows.Value(parts, static_cast<int>(i)) - value_[static_cast<size_t>(first) * kLanes + at];
    }
  }
  if (any) Apply(change_.data(), first, shape.elements);
  return any;
}

double BlockDescent::Run(int first_row, int passes, BlockRows& rows) {
  Start(first_row, rows);
  const BlockShape& shape = rows.shape();
  for (int pass = 0; pass < passes; ++pass) {
    bool moved = MoveCodes(rows);
    for (int block = 0; block < rows.blocks(); ++block) {
      if (shape.largest_scale > 1) {
        for (int group = 0; group < shape.groups(); ++group) {
          moved = MoveGroupScales(rows, block, group) || moved;
        }
      }
      moved = MoveBlockScale(rows, block, false) || moved;
      if (shape.IsAffine()) moved = MoveBlockScale(rows, block, true) || moved;
    }
    if (!moved) break;
  }
  double error = 0;
  for (int c = 0; c < w_.cols; ++c) {
    for (int lane = 0; lane < lanes_; ++lane) {
      const size_t at = static_cast<size_t>(c) * kLanes + static_cast<size_t>(lane);
      error += double{value_[at] - target_[at]} * double{gradient_[at]};
    }
  }
  return error / 2;
}

}  // namespace nibble
