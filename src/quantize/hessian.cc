#include "quantize/hessian.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/math.h"
#include "platform/thread_pool.h"
#include "quantize/dense_kernels.h"

namespace nibble {
namespace {

constexpr int kTokens = 256;  // two panels of them, 32 KiB, lie in the nearest cache

// x [tokens][cols] as panels [cols / 16][tokens][16], zeros behind the last column.
void PackTokens(MatrixView<const float> x, int panel, float* out) {
  const int first = panel * kPanel;
  const int count = std::min(kPanel, x.cols - first);
  for (int t = 0; t < x.rows; ++t) {
    std::copy_n(x.row(t) + first, count, out + t * kPanel);
    std::fill(out + t * kPanel + count, out + (t + 1) * kPanel, 0.0f);
  }
}

}  // namespace

Hessian::Hessian(int cols) : cols_(cols) {
  NIBBLE_CHECK(cols > 0);
  sums_.resize(static_cast<size_t>(cols) * static_cast<size_t>(cols));
}

void Hessian::Add(MatrixView<const float> x, ThreadPool& pool) {
  NIBBLE_CHECK(x.cols == cols_);
  const DenseKernels& kernels = DenseKernelsHere();
  const int panels = CeilDiv(cols_, kPanel);
  std::vector<float> packed(static_cast<size_t>(panels) * kTokens * kPanel);
  for (int first = 0; first < x.rows; first += kTokens) {
    const int count = std::min(kTokens, x.rows - first);
    const MatrixView<const float> part = {x.row(first), count, x.cols, x.stride};
    const ptrdiff_t panel_floats = ptrdiff_t{count} * kPanel;
    pool.ParallelFor(panels, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t p = begin; p < end; ++p) {
        PackTokens(part, static_cast<int>(p), packed.data() + p * panel_floats);
      }
    });
    const auto add_tile = [&](int row_panel, int col_panel) {
      float sums[kPanel * kPanel];
      kernels.products(packed.data() + row_panel * panel_floats,
                       packed.data() + col_panel * panel_floats, count, sums);
      const int rows = std::min(kPanel, cols_ - row_panel * kPanel);
      const int cols = std::min(kPanel, cols_ - col_panel * kPanel);
      for (int i = 0; i < rows; ++i) {
        double* out = sums_.data() + ptrdiff_t{row_panel * kPanel + i} * cols_ + col_panel * kPanel;
        for (int j = 0; j < cols; ++j) out[j] += double{sums[i * kPanel + j]};
      }
    };
    // Row p of the triangle has panels − p tiles: with its mirror they come to panels + 1.
    pool.ParallelFor(CeilDiv(panels, 2), 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t pair = begin; pair < end; ++pair) {
        const int top = static_cast<int>(pair);
        const int bottom = panels - 1 - top;
        for (int col = top; col < panels; ++col) add_tile(top, col);
        if (bottom == top) continue;
        for (int col = bottom; col < panels; ++col) add_tile(bottom, col);
      }
    });
  }
  tokens_ += x.rows;
}

Status Hessian::Check() const {
  if (tokens_ == 0) return BadInput("calibration: expected inputs, found none");
  for (int c = 0; c < cols_; ++c) {
    const double square = sums_[static_cast<size_t>(c) * static_cast<size_t>(cols_ + 1)];
    if (!std::isfinite(square)) {
      return BadInput("calibration: input column {}: its mean square is {}", c, square);
    }
  }
  return {};
}

double Hessian::At(int row, int col) const {
  if (row > col) std::swap(row, col);
  const double factor = 2.0 / static_cast<double>(std::max<int64_t>(tokens_, 1));
  return factor *
         sums_[static_cast<size_t>(row) * static_cast<size_t>(cols_) + static_cast<size_t>(col)];
}

std::vector<double> Hessian::Diagonal() const {
  std::vector<double> diagonal;
  for (int c = 0; c < cols_; ++c) diagonal.push_back(At(c, c));
  return diagonal;
}

Hessian Hessian::FromMatrix(int cols, std::span<const double> matrix) {
  Hessian hessian(cols);
  NIBBLE_CHECK(matrix.size() == hessian.sums_.size());
  std::ranges::copy(matrix, hessian.sums_.begin());
  hessian.tokens_ = 2;
  return hessian;
}

}  // namespace nibble
