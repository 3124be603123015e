#include "kernels/activations.h"

#include <algorithm>

#include "base/check.h"
#include "base/math.h"
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
};
Arrays CarveAll(Carver& carver, int rows, int cols, ActNeeds needs) {
  Arrays arrays;
  if (needs.group32) arrays.group32 = Carve(carver, rows, cols, 32);
  if (needs.group256) arrays.group256 = Carve(carver, rows, cols, 256);
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

void ActivationBlock::Prepare(const KernelTable& kernels, ThreadPool& pool,
                              MatrixView<const float> x, ActNeeds needs,
                              FunctionRef<void(int row)> make_row) {
  x_ = x;
  needs_ = needs;
  if (x.rows == 0 || !(needs.group32 || needs.group256 || make_row)) return;
  NIBBLE_CHECK(Bytes(x.rows, x.cols, needs) <= storage_.size());
  Carver carver(storage_.data());
  const Arrays arrays = CarveAll(carver, x.rows, x.cols, needs);
  const QuantiseFn quantise = kernels.matmul->quantise;

  const auto quantise_rows = [&](int64_t begin, int64_t end, int) {
    for (int row = static_cast<int>(begin); row < end; ++row) {
      if (make_row) make_row(row);
      for (const int group : {32, 256}) {
        const QuantisedRowOut& all = group == 32 ? arrays.group32 : arrays.group256;
        if (all.codes == nullptr) continue;
        quantise(x.row(row), x.cols, group, RowOf(all, x.rows, RoundUp(x.cols, group), group, row));
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
