#include "quantize/rotation.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/split_mix.h"
#include "platform/thread_pool.h"

namespace nibble {

Result<Rotation> Rotation::Make(int n, uint64_t seed) {
  Rotation rotation;
  NIBBLE_TRY(rotation.factors_, FindHadamard(n));
  const double factor = 1 / std::sqrt(static_cast<double>(n));
  for (int i = 0; i < n; ++i) {
    const bool negative = (SplitMixAt(seed, static_cast<uint64_t>(i)) >> 63) != 0;
    rotation.column_factors_.push_back(negative ? -factor : factor);
  }
  return rotation;
}

void Rotation::Apply(double* v) const {
  MultiplyByHadamard(factors_, v);
  for (size_t i = 0; i < column_factors_.size(); ++i) v[i] *= column_factors_[i];
}

void Rotation::RotateInputs(MatrixView<float> w, ThreadPool& pool) const {
  NIBBLE_CHECK(w.cols == size());
  pool.ParallelFor(w.rows, 1, [&](int64_t begin, int64_t end, int) {
    std::vector<double> row(static_cast<size_t>(w.cols));
    for (int64_t r = begin; r < end; ++r) {
      const auto own = w.row_span(static_cast<int>(r));
      std::ranges::copy(own, row.begin());
      Apply(row.data());
      for (size_t c = 0; c < row.size(); ++c) own[c] = static_cast<float>(row[c]);
    }
  });
}

void Rotation::RotateOutputs(MatrixView<float> w, std::span<float> bias, ThreadPool& pool) const {
  NIBBLE_CHECK(w.rows == size() && (bias.empty() || bias.size() == static_cast<size_t>(size())));
  const auto rotate = [&](std::vector<double>& column, auto at) {
    for (int r = 0; r < size(); ++r) column[static_cast<size_t>(r)] = double{at(r)};
    Apply(column.data());  // Qᵀ x is x · Q as a row
    for (int r = 0; r < size(); ++r) at(r) = static_cast<float>(column[static_cast<size_t>(r)]);
  };
  pool.ParallelFor(w.cols, 16, [&](int64_t begin, int64_t end, int) {
    std::vector<double> column(static_cast<size_t>(size()));
    for (int64_t c = begin; c < end; ++c)
      rotate(column, [&](int r) -> float& { return w.row(r)[c]; });
  });
  if (bias.empty()) return;
  std::vector<double> column(static_cast<size_t>(size()));
  rotate(column, [&](int r) -> float& { return bias[static_cast<size_t>(r)]; });
}

void RotateHeads(const Rotation& rotation, const ValuePath& path, ThreadPool& pool) {
  const int dim = rotation.size();
  NIBBLE_CHECK(path.v.rows % dim == 0 && path.o.cols % dim == 0);
  for (int first = 0; first < path.v.rows; first += dim) {
    const auto bias = path.v_bias.empty() ? std::span<float>()
                                          : path.v_bias.subspan(static_cast<size_t>(first),
                                                                static_cast<size_t>(dim));
    rotation.RotateOutputs({path.v.row(first), dim, path.v.cols, path.v.stride}, bias, pool);
  }
  for (int first = 0; first < path.o.cols; first += dim) {
    rotation.RotateInputs({path.o.data + first, path.o.rows, dim, path.o.stride}, pool);
  }
}

void FoldNorm(const NormFold& norm, MatrixView<float> w, std::span<float> bias) {
  NIBBLE_CHECK(norm.gain.size() == static_cast<size_t>(w.cols));
  NIBBLE_CHECK(norm.norm_bias.empty() || (norm.norm_bias.size() == norm.gain.size() &&
                                          bias.size() == static_cast<size_t>(w.rows)));
  for (int r = 0; r < w.rows; ++r) {
    float* row = w.row(r);
    double shift = 0;
    for (size_t c = 0; c < norm.norm_bias.size(); ++c) {
      shift += double{row[c]} * double{norm.norm_bias[c]};
    }
    if (!norm.norm_bias.empty()) {
      float& own = bias[static_cast<size_t>(r)];
      own = static_cast<float>(double{own} + shift);
    }
    for (size_t c = 0; c < norm.gain.size(); ++c) {
      const double gain = double{norm.gain[c]} + (norm.plus_one ? 1 : 0);
      row[c] = static_cast<float>(double{row[c]} * gain);
    }
  }
}

void RemoveOutputMean(MatrixView<float> w, std::span<float> bias) {
  NIBBLE_CHECK(bias.empty() || bias.size() == static_cast<size_t>(w.rows));
  std::vector<double> sums(static_cast<size_t>(w.cols));
  for (int r = 0; r < w.rows; ++r) {
    for (size_t c = 0; c < sums.size(); ++c) sums[c] += double{w.row(r)[c]};
  }
  double bias_sum = 0;
  for (const float value : bias) bias_sum += double{value};
  for (int r = 0; r < w.rows; ++r) {
    for (size_t c = 0; c < sums.size(); ++c) {
      float& value = w.row(r)[c];
      value = static_cast<float>(double{value} - sums[c] / w.rows);
    }
  }
  for (float& value : bias) value = static_cast<float>(double{value} - bias_sum / w.rows);
}

void RemoveRowMeans(MatrixView<float> w) {
  for (int r = 0; r < w.rows; ++r) {
    double sum = 0;
    for (const float value : w.row_span(r)) sum += double{value};
    for (float& value : w.row_span(r)) value = static_cast<float>(double{value} - sum / w.cols);
  }
}

Result<RotationPlan> PlanRotation(const ModelConfig& config) {
  if (config.post_norms) {
    return BadInput(
        "rotation: {} has norms behind attention and FFN, whose gains stand between those and the "
        "stream: nothing can take them up",
        config.architecture);
  }
  if (const auto known = FindHadamard(config.width); !known) return std::unexpected(known.error());
  RotationPlan plan;
  for (const Linear linear : {Linear::kQuery, Linear::kKey, Linear::kValue}) {
    plan.stream.push_back({linear, RotationSide::kInputs, Norm::kAttention});
  }
  plan.stream.push_back({Linear::kOutput, RotationSide::kOutputs});
  if (config.ffn == FfnKind::kGated) {
    plan.stream.push_back({Linear::kGate, RotationSide::kInputs, Norm::kFfn});
  }
  plan.stream.push_back({Linear::kUp, RotationSide::kInputs, Norm::kFfn});
  plan.stream.push_back({Linear::kDown, RotationSide::kOutputs});
  plan.untie = config.tied_embeddings;
  plan.layer_norm = config.norm == NormKind::kLayer;
  plan.positions = config.learned_positions;
  return plan;
}

}  // namespace nibble
