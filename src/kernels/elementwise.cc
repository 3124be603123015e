#include "kernels/elementwise.h"

#include "base/check.h"
#include "kernels/float_kernels.h"
#include "kernels/kernel_table.h"
#include "kernels/scalar_math.h"
#include "platform/thread_pool.h"

namespace nibble {

void ForRows(ThreadPool& pool, int rows, int cols, FunctionRef<void(int row)> fn) {
  if (rows <= 1 || int64_t{rows} * cols <= kFewFloats) {
    for (int r = 0; r < rows; ++r) fn(r);
    return;
  }
  pool.ParallelFor(rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) fn(static_cast<int>(r));
  });
}

void RmsNorm(const KernelTable& kernels, const NormParams& norm, const float* x, int n, float* y) {
  NIBBLE_CHECK(norm.bias == nullptr);
  kernels.floats->rms_norm(x, norm.weight, norm.eps, n, y);
}

void LayerNorm(const KernelTable& kernels, const NormParams& norm, const float* x, int n,
               float* y) {
  NIBBLE_CHECK(norm.weight != nullptr);
  kernels.floats->layer_norm(x, norm.weight, norm.bias, norm.eps, n, y);
}

void ApplyGate(const KernelTable& kernels, Gate gate, const float* a, const float* b, int n,
               float* y) {
  kernels.floats->gate[static_cast<int>(gate)](a, b, n, y);
}

void Add(const KernelTable& kernels, const float* x, int n, float* y) {
  kernels.floats->add(x, n, y);
}

void Scale(const KernelTable& kernels, float factor, int n, float* x) {
  kernels.floats->scale(factor, n, x);
}

void SoftCap(const KernelTable& kernels, ThreadPool& pool, float cap, MatrixView<float> x) {
  const auto soft_cap = kernels.floats->soft_cap;
  if (x.rows != 1)
    return ForRows(pool, x.rows, x.cols, [&](int r) { soft_cap(cap, x.cols, x.row(r)); });
  pool.ParallelFor(x.cols, kFewFloats, [&](int64_t begin, int64_t end, int) {
    soft_cap(cap, static_cast<int>(end - begin), x.row(0) + begin);
  });
}

void Rope(const KernelTable& kernels, const RopeTable& table, int at, int heads,
          std::span<float> x) {
  const int pairs = table.cos.cols;
  const int head_dim = static_cast<int>(x.size()) / heads;
  NIBBLE_CHECK(at >= 0 && at < table.cos.rows);
  NIBBLE_CHECK(table.sin.cols == pairs && 2 * pairs <= head_dim);
  const auto rotate =
      table.interleaved ? kernels.floats->rope_interleaved : kernels.floats->rope_halves;
  rotate({table.cos.row(at), table.sin.row(at), pairs, heads, head_dim}, x.data());
}

void FillRopeRow(Position position, std::span<const float> inv_freq, float factor, float* cos,
                 float* sin) {
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    // Exact for positions below 2^29: 24 + 29 bits fit a double.
    const double angle = static_cast<double>(position.value()) * static_cast<double>(inv_freq[i]);
    cos[i] = static_cast<float>(Cos(angle) * static_cast<double>(factor));
    sin[i] = static_cast<float>(Sin(angle) * static_cast<double>(factor));
  }
}

LogSumExp ComputeLogSumExp(const KernelTable& kernels, std::span<const float> logits) {
  LogSumExp result;
  result.max = kernels.floats->max(logits.data(), static_cast<int>(logits.size()));
  const double sum =
      kernels.floats->sum_exp(logits.data(), result.max, static_cast<int64_t>(logits.size()));
  result.log_sum_exp = static_cast<double>(result.max) + Log(sum);
  return result;
}

double ComputeDivergence(const KernelTable& kernels, const LogitsPair& row) {
  const LogSumExp& base = row.base_sum;
  const double gap = base.log_sum_exp - row.candidate_sum.log_sum_exp;
  const auto rounded = static_cast<float>(gap);
  const double sum = kernels.floats->sum_exp_gap(row.base.data(), row.candidate.data(), base.max,
                                                 rounded, static_cast<int64_t>(row.base.size()));
  return sum * Exp(static_cast<double>(base.max) - base.log_sum_exp) -
         (gap - static_cast<double>(rounded));
}

}  // namespace nibble
