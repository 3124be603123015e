#include "kernels/outliers.h"

#include <algorithm>

#include "base/check.h"
#include "base/math.h"
#include "format/small_float.h"
#include "kernels/panel_layout.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

// Column `depth` of 16 rows, without the rows' scales.
void DecodeColumn(const PanelLayout& layout, const uint8_t* panel, int depth,
                  float (&w)[kPanelRows]) {
  const uint8_t* side =
      panel + static_cast<size_t>(depth / layout.block) * static_cast<size_t>(layout.chunk_bytes);
  const int in_block = depth % layout.block;
  const uint8_t* codes = side + layout.side_bytes() + in_block / 32 * layout.group32_bytes() +
                         in_block % 32 / 4 * 4 * kPanelRows + in_block % 4;
  for (int r = 0; r < kPanelRows; ++r) {
    const auto half = static_cast<uint16_t>(side[2 * r] | side[2 * r + 1] << 8);
    const int zero = side[2 * kPanelRows + r];
    w[r] = static_cast<float>(codes[4 * r] - zero) * F16ToF32(half);
  }
}

void AddToPanel(const ActivationBlock& x, const MatmulTask& task, int panel,
                std::optional<std::span<const int>> token_rows) {
  const PackedMatrix& weights = *task.weights;
  const PanelLayout layout = PanelLayoutOf(weights.format());
  const auto* bytes = reinterpret_cast<const uint8_t*>(weights.bytes().data()) +
                      static_cast<size_t>(panel) *
                          static_cast<size_t>(weights.cols() / layout.block) *
                          static_cast<size_t>(layout.chunk_bytes);
  const int first = panel * kPanelRows;
  const int rows = std::min(kPanelRows, weights.rows() - first);
  float scale[kPanelRows];
  std::fill_n(scale, kPanelRows, 1.0F);
  if (weights.row_scales() != nullptr) std::copy_n(weights.row_scales() + first, rows, scale);
  const int tokens = token_rows ? static_cast<int>(token_rows->size()) : x.input().rows;
  for (int t = 0; t < tokens; ++t) {
    const int row = token_rows ? (*token_rows)[static_cast<size_t>(t)] : t;
    const std::span<const int32_t> outliers = x.outliers(row);
    if (outliers.empty()) continue;
    float sum[kPanelRows] = {};
    for (const int32_t depth : outliers) {
      float w[kPanelRows];
      DecodeColumn(layout, bytes, depth, w);
      const float value = x.input().row(row)[depth];
      for (int r = 0; r < kPanelRows; ++r) sum[r] += w[r] * scale[r] * value;
    }
    float* y = task.y.row(t) + first;
    for (int r = 0; r < rows; ++r) y[r] += sum[r];
  }
}

}  // namespace

void AddOutliers(ThreadPool& pool, const ActivationBlock& x, const MatmulTask& task,
                 std::optional<std::span<const int>> token_rows) {
  bool any = false;
  for (int row = 0; row < x.input().rows && !any; ++row) any = !x.outliers(row).empty();
  if (!any || task.weights->empty()) return;
  const PanelLayout layout = PanelLayoutOf(task.weights->format());
  NIBBLE_CHECK(layout.planes == CodePlanes::kByte && layout.has_zero());
  pool.ParallelFor(CeilDiv(task.weights->rows(), kPanelRows), 4,
                   [&](int64_t begin, int64_t end, int) {
                     for (int64_t panel = begin; panel < end; ++panel) {
                       AddToPanel(x, task, static_cast<int>(panel), token_rows);
                     }
                   });
}

}  // namespace nibble
