#include "quantize/gptq_blocks.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/math.h"
#include "format/block_parts.h"
#include "platform/thread_pool.h"
#include "quantize/block_descent.h"
#include "quantize/block_rows.h"
#include "quantize/error_feedback.h"
#include "quantize/rtn.h"

namespace nibble {
namespace {

struct BlockPlan {
  MatrixView<const float> w;
  const HessianFactor* factor;
  bool static_scales;
  std::vector<float> costs;  // [cols] of an error in each column
};

class BlockPanel : public PanelGrid {
 public:
  BlockPanel(const BlockPlan& plan, BlockRows& rows) : plan_(plan), rows_(rows) {
    x_.resize(static_cast<size_t>(rows.shape().elements));
    std::fill_n(scale_, kPanel, 1.0f);
  }

  void SetRows(int first_row) {
    lanes_ = std::min(kPanel, plan_.w.rows - first_row);
    group_ = -1;
    if (!plan_.static_scales) return;
    const int elements = rows_.shape().elements;
    for (int lane = 0; lane < lanes_; ++lane) {
      const float* row = plan_.w.row(first_row + lane);
      for (int block = 0; block < rows_.blocks(); ++block) {
        for (int i = 0; i < elements; ++i) {
          const int column = block * elements + i;
          x_[static_cast<size_t>(i)] =
              plan_.factor->dead[static_cast<size_t>(column)] ? 0.0f : row[column];
        }
        rows_.At(lane, block) = FitBlock(rows_.format(), x_, Costs(block * elements, elements));
      }
    }
  }

  int Ahead(int position) const override {
    const BlockShape& shape = rows_.shape();
    if (plan_.static_scales || position % shape.group != 0) return 0;
    return position % shape.elements == 0 ? shape.elements : shape.group;
  }

  void Begin(int position, const float* columns) override {
    const BlockShape& shape = rows_.shape();
    const int block = position / shape.elements;
    const int element = position % shape.elements;
    const int count = Ahead(position);
    for (int lane = 0; lane < lanes_; ++lane) {
      for (int i = 0; i < count; ++i) {
        x_[static_cast<size_t>(i)] = columns[ptrdiff_t{position + i} * kPanel + lane];
      }
      const std::span<const float> x(x_.data(), static_cast<size_t>(count));
      BlockParts& parts = rows_.At(lane, block);
      if (element == 0) parts = FitBlock(rows_.format(), x, Costs(position, count));
      if (shape.largest_scale == 1) continue;
      RefitGroup(rows_, element / shape.group, x.first(static_cast<size_t>(shape.group)),
                 Costs(position, shape.group), parts);
    }
  }

  void Quantize(int position, const float* weights, float* values) override {
    const BlockShape& shape = rows_.shape();
    const int column = plan_.factor->order[static_cast<size_t>(position)];
    if (column / shape.group != group_ || position % shape.group == 0) Use(column);
    const auto element = static_cast<size_t>(column % shape.elements);
    for (int lane = 0; lane < kPanel; ++lane) {
      const uint8_t code = rows_.CodeOf(weights[lane], scale_[lane], min_[lane]);
      rows_.At(lane, column / shape.elements).codes[element] = code;
      values[lane] = scale_[lane] * rows_.Level(code) - min_[lane];
    }
  }

 private:
  std::span<const float> Costs(int first, int count) const {
    return std::span(plan_.costs).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
  }
  void Use(int column) {
    const BlockShape& shape = rows_.shape();
    group_ = column / shape.group;
    const int block = column / shape.elements;
    for (int lane = 0; lane < lanes_; ++lane) {
      const BlockParts& parts = rows_.At(lane, block);
      const int group = column % shape.elements / shape.group;
      scale_[lane] = rows_.ScaleOf(parts, group);
      min_[lane] = rows_.MinOf(parts, group);
    }
  }

  const BlockPlan& plan_;
  BlockRows& rows_;
  int lanes_ = kPanel;
  int group_ = -1;
  float scale_[kPanel];
  float min_[kPanel] = {};
  std::vector<float> x_;
};

// The damped H as floats, dead columns with 1.
std::vector<float> DampedHessian(const Hessian& hessian, const HessianFactor& factor,
                                 ThreadPool& pool) {
  const auto n = static_cast<size_t>(factor.cols);
  std::vector<double> diagonal = hessian.Diagonal();
  for (size_t c = 0; c < n; ++c) {
    if (factor.dead[c]) diagonal[c] = 1;
  }
  const double added = factor.damping * std::accumulate(diagonal.begin(), diagonal.end(), 0.0) /
                       static_cast<double>(n);
  std::vector<float> damped(n * n);
  pool.ParallelFor(factor.cols, 1, [&](int64_t begin, int64_t end, int) {
    for (int r = static_cast<int>(begin); r < end; ++r) {
      float* row = damped.data() + static_cast<size_t>(r) * n;
      for (int c = 0; c < factor.cols; ++c) row[c] = static_cast<float>(hessian.At(r, c));
      row[r] = static_cast<float>(diagonal[static_cast<size_t>(r)] + added);
    }
  });
  return damped;
}

std::vector<float> ColumnCosts(const Hessian& hessian, const HessianFactor& factor,
                               BlockWeights weights) {
  std::vector<float> costs(static_cast<size_t>(factor.cols));
  for (int k = 0; k < factor.cols; ++k) {
    const int column = factor.order[static_cast<size_t>(k)];
    const double u = double{factor.row(k)[k]};
    costs[static_cast<size_t>(column)] = static_cast<float>(
        weights == BlockWeights::kConditional ? 1 / (u * u) : hessian.At(column, column));
  }
  return costs;
}

Status CheckBlocks(MatrixView<const float> w, const HessianFactor& factor, Format format,
                   ThreadPool& pool) {
  const FormatTraits& traits = TraitsOf(format);
  const BlockShape* shape = BlockShapeOf(format);
  if (shape == nullptr) {
    return BadInput("gptq: {} has no blocks with scales to search", traits.name);
  }
  if (w.cols % shape->elements != 0) {
    return BadInput("gptq: {} columns, which {} (blocks of {}) does not divide", w.cols,
                    traits.name, shape->elements);
  }
  if (factor.cols != w.cols) {
    return BadInput("gptq: calibrated for {} inputs, found a matrix of {}", factor.cols, w.cols);
  }
  return CheckFinite(w, pool);
}

}  // namespace

Result<BlockGptqResult> QuantizeGptqBlocks(MatrixView<const float> w, const Hessian& hessian,
                                           const HessianFactor& factor,
                                           const BlockGptqOptions& options, ThreadPool& pool) {
  NIBBLE_CHECK(w.rows > 0 && hessian.cols() == factor.cols && options.block > 0);
  NIBBLE_RETURN_IF_ERROR(CheckBlocks(w, factor, options.format, pool));
  const BlockPlan plan = {
      .w = w,
      .factor = &factor,
      .static_scales = options.static_scales || !std::ranges::is_sorted(factor.order),
      .costs = ColumnCosts(hessian, factor, options.weights)};
  const std::vector<float> damped = DampedHessian(hessian, factor, pool);
  const size_t row_bytes = TraitsOf(options.format).RowBytes(static_cast<size_t>(w.cols));
  BlockGptqResult result;
  result.bytes.resize(static_cast<size_t>(w.rows) * row_bytes);
  const int panels = CeilDiv(w.rows, kPanel);
  std::vector<float> losses(static_cast<size_t>(panels) * static_cast<size_t>(w.cols));
  std::vector<double> errors(static_cast<size_t>(panels));
  pool.ParallelFor(panels, 1, [&](int64_t begin, int64_t end, int) {
    ErrorFeedback feedback({.w = w, .factor = &factor, .block = options.block});
    BlockRows rows(options.format, w.cols);
    BlockPanel grid(plan, rows);
    BlockDescent descent(w, damped.data(), factor.dead);
    for (int64_t p = begin; p < end; ++p) {
      const int first = static_cast<int>(p) * kPanel;
      grid.SetRows(first);
      feedback.Run(first, grid, losses.data() + p * w.cols);
      errors[static_cast<size_t>(p)] = descent.Run(first, options.passes, rows);
      for (int lane = 0; lane < std::min(kPanel, w.rows - first); ++lane) {
        rows.Join(lane, result.bytes.data() + static_cast<size_t>(first + lane) * row_bytes);
      }
    }
  });
  result.column_losses = SumLosses(losses, w.cols);
  result.feedback_loss =
      std::accumulate(result.column_losses.begin(), result.column_losses.end(), 0.0);
  result.loss = std::accumulate(errors.begin(), errors.end(), 0.0);
  return result;
}

}  // namespace nibble
