#include "kernels/activations.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "base/math.h"
#include "format/small_float.h"
#include "kernels/activations_layout.h"
#include "kernels/kernel_table.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

// Hands out 64-byte aligned arrays from one buffer; with a null base it only adds up.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}

  template <class T>
  T* Take(size_t count) {
    T* out = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += RoundUp<size_t>(count * sizeof(T), 64);
    return out;
  }
  size_t used() const { return used_; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

QuantisedRowOut Carve(Carver& carver, int rows, int cols, int group) {
  const auto n = static_cast<size_t>(rows);
  const auto depth = static_cast<size_t>(RoundUp(cols, group));
  QuantisedRowOut out{};
  out.codes = carver.Take<int8_t>(n * depth);
  out.scale = carver.Take<float>(n * depth / static_cast<size_t>(group));
  out.neg_sum32 = carver.Take<int32_t>(n * depth / 32);
  out.neg_sum16 = carver.Take<int32_t>(n * depth / 16);
  if (group == 32) {
    out.scaled_sum = carver.Take<float>(n * depth / 32);
  } else {
    out.sum_pair32 = carver.Take<int32_t>(n * depth / 64);
    out.sum_pair16 = carver.Take<int32_t>(n * depth / 32);
  }
  return out;
}

struct Arrays {
  QuantisedRowOut group32{};
  QuantisedRowOut group256{};
  float* copy = nullptr;  // [rows][cols]
};
Arrays CarveAll(Carver& carver, int rows, int cols, ActNeeds needs) {
  Arrays arrays;
  if (needs.group32) arrays.group32 = Carve(carver, rows, cols, 32);
  if (needs.group256) arrays.group256 = Carve(carver, rows, cols, 256);
  if (needs.copy)
    arrays.copy = carver.Take<float>(static_cast<size_t>(rows) * static_cast<size_t>(cols));
  return arrays;
}

// The pointers of one row inside the tiles.
QuantisedRowOut RowOf(const QuantisedRowOut& all, int rows, int depth, int group, int row) {
  const int tile = row / kTokenTile;
  const int width = std::min(kTokenTile, rows - tile * kTokenTile);
  const int index = row % kTokenTile;
  const auto at = [&](auto* array, int entries, int scale = 1) {
    if (array == nullptr) return array;
    return array + (static_cast<ptrdiff_t>(tile) * kTokenTile * entries + index) * scale;
  };
  return {.codes = at(all.codes, depth / 4, 4),
          .scale = at(all.scale, depth / group),
          .scaled_sum = at(all.scaled_sum, depth / 32),
          .neg_sum32 = at(all.neg_sum32, depth / 32),
          .neg_sum16 = at(all.neg_sum16, depth / 16),
          .sum_pair32 = at(all.sum_pair32, depth / 64),
          .sum_pair16 = at(all.sum_pair16, depth / 32),
          .width = width};
}

float LargestMagnitude(std::span<const float> x) {
  int32_t max_bits = 0;  // a NaN is the largest
  for (const float value : x) {
    max_bits = std::max(max_bits, std::bit_cast<int32_t>(value) & 0x7fffffff);
  }
  return std::bit_cast<float>(max_bits);
}

// x = scale · E4M3(x / scale): |x| up to 448 scales. A row with a NaN or infinity becomes NaN.
void RoundToF8(float scale, std::span<float> x) {
  if (!(scale > 0)) return;  // zeros
  if (!std::isfinite(scale)) {
    std::ranges::fill(x, std::nanf(""));
    return;
  }
  for (float& value : x) value = F8E4M3ToF32(F32ToF8E4M3Saturating(value / scale)) * scale;
}

// Below this many elements a parallel region costs more than it saves.
constexpr int64_t kSerialElements = 4096;

}  // namespace

size_t ActivationBlock::Bytes(int rows, int cols, ActNeeds needs) {
  Carver carver(nullptr);
  CarveAll(carver, rows, cols, needs);
  return carver.used();
}

Status ActivationBlock::Reserve(int rows, int cols, ActNeeds needs) {
  const size_t bytes = Bytes(rows, cols, needs);
  if (bytes <= storage_.size()) return {};
  NIBBLE_TRY(storage_, AlignedBuffer::Allocate(bytes));
  storage_.Touch();  // the memory contract counts it, whatever the steps to come
  return {};
}

// The floats of a row in its form, and its outliers.
void ActivationBlock::FormRow(const ActForm& form, int row, float* to) {
  const std::span<const float> x = x_.row_span(row);
  const std::span<float> out(to, x.size());
  if (form.order == nullptr) {
    std::ranges::copy(x, to);
  } else {
    for (size_t i = 0; i < x.size(); ++i) out[i] = x[static_cast<size_t>(form.order[i])];
  }
  switch (form.scheme) {
    case ActScheme::kUsual:
    case ActScheme::kInt8Token:
      return;
    case ActScheme::kInt8Static: {
      const float limit = 127.0F * form.scale;  // a NaN stays
      for (float& value : out) value = value > limit ? limit : value < -limit ? -limit : value;
      return;
    }
    case ActScheme::kInt8Outliers: {
      std::vector<int32_t>& outliers = outliers_[static_cast<size_t>(row)];
      for (size_t i = 0; i < out.size() && form.threshold > 0; ++i) {
        // A NaN is none: it makes the row's scale one, and so every result.
        if (!(std::fabs(out[i]) >= form.threshold)) continue;
        outliers.push_back(static_cast<int32_t>(i));
        out[i] = 0;
      }
      return;
    }
    case ActScheme::kF8Token:
      return RoundToF8(LargestMagnitude(out) / 448.0F, out);
    case ActScheme::kF8Static:
      return RoundToF8(form.scale, out);
  }
}

// Codes of a whole row and groups at once would be multiplied by the wrong scales.
void ActivationBlock::Prepare(const KernelTable& kernels, ThreadPool& pool,
                              MatrixView<const float> x, ActNeeds needs,
                              FunctionRef<void(int row)> make_row, const ActForm& form) {
  x_ = x;
  needs_ = needs;
  floats_ = x;
  outliers_.clear();
  if (x.rows == 0 || !(needs.group32 || needs.group256 || needs.copy || make_row)) return;
  NIBBLE_CHECK(Bytes(x.rows, x.cols, needs) <= storage_.size());
  NIBBLE_CHECK(needs.copy == form.Copies() && !(needs.group256 && form.IsInt8()));
  Carver carver(storage_.data());
  const Arrays arrays = CarveAll(carver, x.rows, x.cols, needs);
  if (needs.copy) floats_ = DenseView<const float>(arrays.copy, x.rows, x.cols);
  if (form.scheme == ActScheme::kInt8Outliers) outliers_.resize(static_cast<size_t>(x.rows));
  const QuantiseFn quantise = kernels.matmul->quantise;

  const auto quantise_rows = [&](int64_t begin, int64_t end, int) {
    for (int row = static_cast<int>(begin); row < end; ++row) {
      if (make_row) make_row(row);
      if (needs.copy) FormRow(form, row, arrays.copy + static_cast<ptrdiff_t>(row) * x.cols);
      for (const int group : {32, 256}) {
        const QuantisedRowOut& all = group == 32 ? arrays.group32 : arrays.group256;
        if (all.codes == nullptr) continue;
        const QuantiseRule rule = {
            .group = group,
            .whole_row = form.IsInt8(),
            .row_scale = form.scheme == ActScheme::kInt8Static ? form.scale : 0};
        quantise(floats_.row(row), x.cols, rule,
                 RowOf(all, x.rows, RoundUp(x.cols, group), group, row));
      }
    }
  };
  // Whole tiles per thread: rows of a tile share cache lines.
  if (int64_t{x.rows} * x.cols <= kSerialElements) return quantise_rows(0, x.rows, 0);
  pool.ParallelFor(x.rows, kTokenTile, quantise_rows);
}

QuantisedRows ActivationAccess::Rows(const ActivationBlock& block, int group) {
  NIBBLE_CHECK(group == 32 ? block.needs_.group32 : block.needs_.group256);
  // Carving only computes addresses; the block stays unchanged.
  Carver carver(const_cast<std::byte*>(block.storage_.data()));
  const Arrays arrays = CarveAll(carver, block.x_.rows, block.x_.cols, block.needs_);
  const QuantisedRowOut& all = group == 32 ? arrays.group32 : arrays.group256;
  return {.codes = all.codes,
          .scale = all.scale,
          .scaled_sum = all.scaled_sum,
          .neg_sum32 = all.neg_sum32,
          .neg_sum16 = all.neg_sum16,
          .sum_pair32 = all.sum_pair32,
          .sum_pair16 = all.sum_pair16,
          .rows = block.x_.rows,
          .depth = RoundUp(block.x_.cols, group)};
}

}  // namespace nibble
