#include "quantize/gptq.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/math.h"
#include "platform/thread_pool.h"
#include "quantize/error_feedback.h"
#include "quantize/rtn.h"

namespace nibble {
namespace {

// What the 16-row grids of one matrix share.
struct GptqPlan {
  MatrixView<const float> w;
  const HessianFactor* factor;
  const GptqOptions* options;
  AffineGrid tensor_grid;  // of Granularity::kTensor
  bool static_groups;
};

class GroupedPanel : public PanelGrid {
 public:
  GroupedPanel(const GptqPlan& plan, GroupedMatrix& out)
      : plan_(plan), spec_(plan.options->grid), out_(out), groups_(out.groups()) {
    values_.resize(static_cast<size_t>(out.group));
  }

  void SetRows(int first_row) {
    first_row_ = first_row;
    lanes_ = std::min(kPanel, out_.rows - first_row);
    current_group_ = -1;
    std::fill_n(scale_, kPanel, 1.0f);  // of the lanes without a row
    if (plan_.static_groups) FitAll();
  }

  int Ahead(int position) const override {
    if (plan_.static_groups || position % out_.group != 0) return 0;
    return std::min(out_.group, out_.cols - position);
  }

  void Begin(int position, const float* columns) override {
    const int group = position / out_.group;
    const auto count = static_cast<size_t>(std::min(out_.group, out_.cols - position));
    for (int lane = 0; lane < lanes_; ++lane) {
      for (size_t i = 0; i < count; ++i) {
        values_[i] =
            columns[(static_cast<size_t>(position) + i) * kPanel + static_cast<size_t>(lane)];
      }
      Put(lane, group, FitGrid({values_.data(), count}, spec_));
    }
    Use(group);
  }

  void Quantize(int position, const float* weights, float* values) override {
    const int column = plan_.factor->order[static_cast<size_t>(position)];
    if (plan_.static_groups && column / out_.group != current_group_) Use(column / out_.group);
    uint8_t codes[kPanel];
    Codes(weights, codes);
    for (int lane = 0; lane < kPanel; ++lane) {
      values[lane] = scale_[lane] * (static_cast<float>(codes[lane]) - zero_[lane]);
    }
    for (int lane = 0; lane < lanes_; ++lane) {
      out_.codes[static_cast<size_t>(first_row_ + lane) * static_cast<size_t>(out_.cols) +
                 static_cast<size_t>(column)] = codes[lane];
    }
  }

 private:
  size_t At(int lane, int group) const {
    return static_cast<size_t>(first_row_ + lane) * static_cast<size_t>(groups_) +
           static_cast<size_t>(group);
  }

  void Put(int lane, int group, const AffineGrid& grid) {
    out_.scales[At(lane, group)] = grid.scale;
    out_.zeros[At(lane, group)] = static_cast<uint8_t>(grid.zero);
  }

  void FitAll() {
    const HessianFactor& factor = *plan_.factor;
    for (int lane = 0; lane < lanes_; ++lane) {
      const float* row = plan_.w.row(first_row_ + lane);
      for (int group = 0; group < groups_; ++group) {
        if (spec_.granularity == Granularity::kTensor) {
          Put(lane, group, plan_.tensor_grid);
          continue;
        }
        const int first = group * out_.group;
        const int count = std::min(out_.group, out_.cols - first);
        for (int i = 0; i < count; ++i) {
          const auto column = static_cast<size_t>(first + i);
          values_[static_cast<size_t>(i)] = factor.dead[column] ? 0.0f : row[column];
        }
        Put(lane, group, FitGrid({values_.data(), static_cast<size_t>(count)}, spec_));
      }
    }
  }

  void Use(int group) {
    current_group_ = group;
    for (int lane = 0; lane < lanes_; ++lane) {
      scale_[lane] = out_.scales[At(lane, group)];
      zero_[lane] = static_cast<float>(out_.zeros[At(lane, group)]);
    }
  }

  // As CodesOn, each lane with its own grid.
  void Codes(const float* weights, uint8_t* codes) const {
    for (int lane = 0; lane < kPanel; ++lane) {
      const AffineGrid grid = {.scale = scale_[lane], .zero = zero_[lane], .step = scale_[lane]};
      CodesOn(grid, spec_, {weights + lane, 1}, codes + lane);
    }
  }

  const GptqPlan& plan_;
  const GridSpec& spec_;
  GroupedMatrix& out_;
  int groups_;
  int first_row_ = 0;
  int lanes_ = kPanel;
  int current_group_ = -1;
  float scale_[kPanel] = {};
  float zero_[kPanel] = {};
  std::vector<float> values_;
};

// The grid that a whole matrix shares, dead columns being zero.
AffineGrid SharedGrid(MatrixView<const float> w, const HessianFactor& factor,
                      const GridSpec& spec) {
  std::vector<float> flat;
  flat.reserve(static_cast<size_t>(w.rows) * static_cast<size_t>(w.cols));
  for (int r = 0; r < w.rows; ++r) {
    for (int c = 0; c < w.cols; ++c) {
      flat.push_back(factor.dead[static_cast<size_t>(c)] ? 0.0f : w.row(r)[c]);
    }
  }
  return FitGrid(flat, spec);
}

}  // namespace

Result<GptqResult> QuantizeGptq(MatrixView<const float> w, const HessianFactor& factor,
                                const GptqOptions& options, ThreadPool& pool) {
  NIBBLE_CHECK(w.rows > 0 && w.cols > 0 && options.block > 0);
  const GridSpec& spec = options.grid;
  NIBBLE_RETURN_IF_ERROR(CheckGridSpec(spec));
  if (factor.cols != w.cols) {
    return BadInput("gptq: calibrated for {} inputs, found a matrix of {}", factor.cols, w.cols);
  }
  NIBBLE_RETURN_IF_ERROR(CheckFinite(w, pool));
  const bool per_tensor = spec.granularity == Granularity::kTensor;
  GptqPlan plan = {.w = w,
                   .factor = &factor,
                   .options = &options,
                   .tensor_grid = {},
                   .static_groups = options.static_groups || per_tensor};
  if (per_tensor) plan.tensor_grid = SharedGrid(w, factor, spec);
  GptqResult result;
  result.matrix = EmptyGroupedMatrix(w.rows, w.cols, spec);
  const int panels = CeilDiv(w.rows, kPanel);
  std::vector<float> losses(static_cast<size_t>(panels) * static_cast<size_t>(w.cols));
  pool.ParallelFor(panels, 1, [&](int64_t begin, int64_t end, int) {
    ErrorFeedback feedback({.w = w, .factor = &factor, .block = options.block});
    GroupedPanel grid(plan, result.matrix);
    for (int64_t p = begin; p < end; ++p) {
      const int first = static_cast<int>(p) * kPanel;
      grid.SetRows(first);
      feedback.Run(first, grid, losses.data() + p * w.cols);
    }
  });
  result.column_losses = SumLosses(losses, w.cols);
  result.loss = std::accumulate(result.column_losses.begin(), result.column_losses.end(), 0.0);
  if (!plan.static_groups && result.matrix.groups() > 1 && !std::ranges::is_sorted(factor.order)) {
    result.matrix.group_of.resize(static_cast<size_t>(w.cols));
    for (int k = 0; k < w.cols; ++k) {
      result.matrix.group_of[static_cast<size_t>(factor.order[static_cast<size_t>(k)])] =
          k / result.matrix.group;
    }
  }
  return result;
}

}  // namespace nibble
