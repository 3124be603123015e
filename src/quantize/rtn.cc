#include "quantize/rtn.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "format/small_float.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

// Integer arithmetic on the bits, which the compiler turns into vectors; isfinite it does not.
bool AllFinite(std::span<const float> row) {
  uint32_t largest = 0;
  for (const float value : row) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(value) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest < 0x7f800000u;
}

AffineGrid TensorGrid(MatrixView<const float> w, const GridSpec& spec) {
  if (w.stride == w.cols) {
    return FitGrid({w.data, static_cast<size_t>(w.rows) * static_cast<size_t>(w.cols)}, spec);
  }
  std::vector<float> flat;
  for (int r = 0; r < w.rows; ++r) {
    const auto row = w.row_span(r);
    flat.insert(flat.end(), row.begin(), row.end());
  }
  return FitGrid(flat, spec);
}

}  // namespace

GroupedMatrix EmptyGroupedMatrix(int rows, int cols, const GridSpec& spec) {
  GroupedMatrix matrix;
  matrix.rows = rows;
  matrix.cols = cols;
  matrix.bits = spec.bits;
  matrix.group = spec.GroupOf(cols);
  matrix.symmetric = spec.symmetric;
  matrix.codes.resize(static_cast<size_t>(rows) * static_cast<size_t>(cols));
  matrix.scales.resize(static_cast<size_t>(rows) * static_cast<size_t>(matrix.groups()));
  matrix.zeros.resize(matrix.scales.size());
  return matrix;
}

Status CheckFinite(MatrixView<const float> w, ThreadPool& pool) {
  std::atomic<int> bad = w.rows;
  pool.ParallelFor(w.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int r = static_cast<int>(begin); r < end && r < bad.load(); ++r) {
      if (AllFinite(w.row_span(r))) continue;
      int seen = bad.load();
      while (r < seen && !bad.compare_exchange_weak(seen, r)) {
      }
      return;
    }
  });
  const int row = bad.load();
  if (row == w.rows) return {};
  for (int c = 0; c < w.cols; ++c) {
    const float value = w.row(row)[c];
    if (!std::isfinite(value)) {
      return BadInput("row {} column {}: expected a finite weight, found {}", row, c, value);
    }
  }
  return {};
}

Result<GroupedMatrix> QuantizeRtn(MatrixView<const float> w, const GridSpec& spec,
                                  ThreadPool& pool) {
  NIBBLE_CHECK(w.rows > 0 && w.cols > 0);
  NIBBLE_RETURN_IF_ERROR(CheckGridSpec(spec));
  NIBBLE_RETURN_IF_ERROR(CheckFinite(w, pool));
  GroupedMatrix matrix = EmptyGroupedMatrix(w.rows, w.cols, spec);
  AffineGrid shared;
  const bool per_tensor = spec.granularity == Granularity::kTensor;
  if (per_tensor) shared = TensorGrid(w, spec);
  const int groups = matrix.groups();
  const auto quantize_row = [&](int r) {
    for (int g = 0; g < groups; ++g) {
      const int first = g * matrix.group;
      const auto values = w.row_span(r).subspan(
          static_cast<size_t>(first), static_cast<size_t>(std::min(matrix.group, w.cols - first)));
      const AffineGrid grid = per_tensor ? shared : FitGrid(values, spec);
      const size_t at =
          static_cast<size_t>(r) * static_cast<size_t>(groups) + static_cast<size_t>(g);
      matrix.scales[at] = grid.scale;
      matrix.zeros[at] = static_cast<uint8_t>(grid.zero);
      CodesOn(grid, spec, values, matrix.codes.data() + static_cast<ptrdiff_t>(r) * w.cols + first);
    }
  };
  pool.ParallelFor(w.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) quantize_row(static_cast<int>(r));
  });
  return matrix;
}

void Dequantize(const GroupedMatrix& matrix, MatrixView<float> out, ThreadPool& pool) {
  NIBBLE_CHECK(out.rows == matrix.rows && out.cols == matrix.cols);
  const auto groups = static_cast<size_t>(matrix.groups());
  pool.ParallelFor(matrix.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const uint8_t* codes = matrix.codes.data() + r * matrix.cols;
      const float* scales = matrix.scales.data() + static_cast<size_t>(r) * groups;
      const uint8_t* zeros = matrix.zeros.data() + static_cast<size_t>(r) * groups;
      float* row = out.row(static_cast<int>(r));
      for (int c = 0; c < matrix.cols; ++c) {
        const auto g = static_cast<size_t>(
            matrix.group_of.empty() ? c / matrix.group : matrix.group_of[static_cast<size_t>(c)]);
        row[c] = scales[g] * static_cast<float>(int{codes[c]} - int{zeros[g]});
      }
    }
  });
}

Result<Fp8Matrix> QuantizeFp8(MatrixView<const float> w, Granularity granularity,
                              ScaleType scale_type, ThreadPool& pool) {
  NIBBLE_CHECK(w.rows > 0 && w.cols > 0);
  if (granularity == Granularity::kGroup) {
    return BadInput("fp8: expected one scale for the tensor or for each channel, found groups");
  }
  NIBBLE_RETURN_IF_ERROR(CheckFinite(w, pool));
  const auto rows = static_cast<size_t>(w.rows);
  Fp8Matrix matrix = {.rows = w.rows, .cols = w.cols, .codes = {}, .scales = {}};
  matrix.codes.resize(rows * static_cast<size_t>(w.cols));
  std::vector<float> largest(rows);
  pool.ParallelFor(w.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      float magnitude = 0;
      for (const float value : w.row_span(static_cast<int>(r))) {
        magnitude = std::max(magnitude, std::fabs(value));
      }
      largest[static_cast<size_t>(r)] = magnitude;
    }
  });
  if (granularity == Granularity::kTensor) largest = {*std::ranges::max_element(largest)};
  for (const float magnitude : largest) {
    const float scale = RoundToType(magnitude / 448, scale_type);
    matrix.scales.push_back(scale != 0 ? scale : 1);
  }
  pool.ParallelFor(w.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const float scale = matrix.scales[matrix.scales.size() == 1 ? 0 : static_cast<size_t>(r)];
      uint8_t* codes = matrix.codes.data() + r * w.cols;
      const float* row = w.row(static_cast<int>(r));
      for (int c = 0; c < w.cols; ++c) codes[c] = F32ToF8E4M3Saturating(row[c] / scale);
    }
  });
  return matrix;
}

void Dequantize(const Fp8Matrix& matrix, MatrixView<float> out) {
  NIBBLE_CHECK(out.rows == matrix.rows && out.cols == matrix.cols);
  for (int r = 0; r < matrix.rows; ++r) {
    const float scale = matrix.scales[matrix.scales.size() == 1 ? 0 : static_cast<size_t>(r)];
    for (int c = 0; c < matrix.cols; ++c) {
      out.row(r)[c] =
          scale *
          F8E4M3ToF32(matrix.codes[static_cast<size_t>(r) * static_cast<size_t>(matrix.cols) +
                                   static_cast<size_t>(c)]);
    }
  }
}

}  // namespace nibble
