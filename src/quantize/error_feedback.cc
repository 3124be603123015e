#include "quantize/error_feedback.h"

#include <algorithm>

#include "base/check.h"

namespace nibble {

ErrorFeedback::ErrorFeedback(const FeedbackTask& task) : task_(task) {
  NIBBLE_CHECK(task.factor->cols == task.w.cols && task.block > 0);
  columns_.resize(static_cast<size_t>(task.w.cols) * kPanel);
  errors_.resize(static_cast<size_t>(task.block) * kPanel);
}

void ErrorFeedback::Load(int first_row) {
  const HessianFactor& factor = *task_.factor;
  lanes_ = std::min(kPanel, task_.w.rows - first_row);
  std::ranges::fill(columns_, 0.0f);
  for (int lane = 0; lane < lanes_; ++lane) {
    const float* row = task_.w.row(first_row + lane);
    for (int k = 0; k < factor.cols; ++k) {
      const auto column = static_cast<size_t>(factor.order[static_cast<size_t>(k)]);
      columns_[static_cast<size_t>(k) * kPanel + static_cast<size_t>(lane)] =
          factor.dead[column] ? 0.0f : row[column];
    }
  }
}

// Columns from `begin` to the end of a block, or to where the grid wants to see columns beyond it.
// Returns the end.
int ErrorFeedback::RunBlock(int begin, PanelGrid& grid, float* losses) {
  const HessianFactor& factor = *task_.factor;
  const DenseKernels& kernels = DenseKernelsHere();
  int end = std::min(begin + task_.block, factor.cols);
  float values[kPanel];
  for (int k = begin; k < end; ++k) {
    if (const int ahead = grid.Ahead(k); ahead > 0) {
      if (k > begin && k + ahead > end) {
        end = k;
        break;
      }
      grid.Begin(k, columns_.data());
    }
    float* weights = columns_.data() + ptrdiff_t{k} * kPanel;
    grid.Quantize(k, weights, values);
    const float* u = factor.row(k);
    float* error = errors_.data() + ptrdiff_t{k - begin} * kPanel;
    float loss = 0;
    for (int lane = 0; lane < kPanel; ++lane) error[lane] = (weights[lane] - values[lane]) / u[k];
    for (int lane = 0; lane < lanes_; ++lane) loss += error[lane] * error[lane];
    losses[factor.order[static_cast<size_t>(k)]] = 0.5f * loss;
    kernels.subtract(columns_.data(), error, u, 0, 1, k + 1, end);
  }
  kernels.subtract(columns_.data(), errors_.data(), factor.row(begin), factor.cols, end - begin,
                   end, factor.cols);
  return end;
}

void ErrorFeedback::Run(int first_row, PanelGrid& grid, float* losses) {
  Load(first_row);
  for (int k = 0; k < task_.factor->cols;) k = RunBlock(k, grid, losses);
}

std::vector<double> SumLosses(std::span<const float> losses, int cols) {
  std::vector<double> sums(static_cast<size_t>(cols));
  for (size_t i = 0; i < losses.size(); ++i) sums[i % sums.size()] += double{losses[i]};
  return sums;
}

}  // namespace nibble
