#include "kernels/elementwise.h"

#include "base/check.h"
#include "kernels/float_kernels.h"
#include "kernels/kernel_table.h"
#include "kernels/scalar_math.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

// A parallel region costs about as much as this many floats of the cheapest operation.
constexpr int64_t kFewFloats = 8192;

// fn(row) for every row, on the pool when there is enough to do.
template <class F>
void ForRows(ThreadPool& pool, int rows, int cols, F&& fn) {
  if (rows <= 1 || int64_t{rows} * cols <= kFewFloats) {
    for (int r = 0; r < rows; ++r) fn(r);
    return;
  }
  pool.ParallelFor(rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) fn(static_cast<int>(r));
  });
}

// fn(row, begin, count) over pieces of rows, for operations in which no element needs another.
template <class F>
void ForPieces(ThreadPool& pool, int rows, int cols, F&& fn) {
  if (rows != 1 || cols <= kFewFloats) {
    ForRows(pool, rows, cols, [&](int r) { fn(r, 0, cols); });
    return;
  }
  pool.ParallelFor(cols, 1024, [&](int64_t begin, int64_t end, int) {
    fn(0, static_cast<int>(begin), static_cast<int>(end - begin));
  });
}

}  // namespace

void RmsNorm(const KernelTable& kernels, ThreadPool& pool, MatrixView<const float> x,
             const NormParams& norm, MatrixView<float> y) {
  NIBBLE_CHECK(x.rows == y.rows && x.cols == y.cols && norm.bias == nullptr);
  const auto run = kernels.floats->rms_norm;
  ForRows(pool, x.rows, x.cols,
          [&](int r) { run(x.row(r), norm.weight, norm.eps, x.cols, y.row(r)); });
}

void LayerNorm(const KernelTable& kernels, ThreadPool& pool, MatrixView<const float> x,
               const NormParams& norm, MatrixView<float> y) {
  NIBBLE_CHECK(x.rows == y.rows && x.cols == y.cols && norm.weight != nullptr);
  const auto run = kernels.floats->layer_norm;
  ForRows(pool, x.rows, x.cols,
          [&](int r) { run(x.row(r), norm.weight, norm.bias, norm.eps, x.cols, y.row(r)); });
}

void ApplyGate(const KernelTable& kernels, ThreadPool& pool, Gate gate, MatrixView<const float> a,
               MatrixView<const float> b, MatrixView<float> y) {
  NIBBLE_CHECK(a.rows == y.rows && a.cols == y.cols);
  NIBBLE_CHECK(b.data == nullptr || (b.rows == y.rows && b.cols == y.cols));
  const auto apply = kernels.floats->gate[static_cast<int>(gate)];
  ForPieces(pool, a.rows, a.cols, [&](int r, int begin, int count) {
    apply(a.row(r) + begin, b.data != nullptr ? b.row(r) + begin : nullptr, count,
          y.row(r) + begin);
  });
}

void Add(const KernelTable& kernels, ThreadPool& pool, MatrixView<const float> x,
         MatrixView<float> y) {
  NIBBLE_CHECK(x.rows == y.rows && x.cols == y.cols);
  const auto add = kernels.floats->add;
  ForPieces(pool, x.rows, x.cols,
            [&](int r, int begin, int count) { add(x.row(r) + begin, count, y.row(r) + begin); });
}

void Scale(const KernelTable& kernels, ThreadPool& pool, float factor, MatrixView<float> x) {
  const auto scale = kernels.floats->scale;
  ForPieces(pool, x.rows, x.cols,
            [&](int r, int begin, int count) { scale(factor, count, x.row(r) + begin); });
}

void SoftCap(const KernelTable& kernels, ThreadPool& pool, float cap, MatrixView<float> x) {
  const auto soft_cap = kernels.floats->soft_cap;
  ForPieces(pool, x.rows, x.cols,
            [&](int r, int begin, int count) { soft_cap(cap, count, x.row(r) + begin); });
}

void Rope(const KernelTable& kernels, ThreadPool& pool, const RopeTable& table,
          std::span<const Position> positions, int heads, MatrixView<float> x) {
  const int pairs = table.cos.cols;
  const int head_dim = x.cols / heads;
  NIBBLE_CHECK(table.sin.cols == pairs && 2 * pairs <= head_dim);
  NIBBLE_CHECK(positions.size() == static_cast<size_t>(x.rows) && x.cols == heads * head_dim);
  const auto rotate =
      table.interleaved ? kernels.floats->rope_interleaved : kernels.floats->rope_halves;
  ForRows(pool, x.rows, x.cols, [&](int r) {
    const int position = positions[r].value();
    NIBBLE_CHECK(position >= 0 && position < table.cos.rows);
    rotate({table.cos.row(position), table.sin.row(position), pairs, heads, head_dim}, x.row(r));
  });
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

}  // namespace nibble
