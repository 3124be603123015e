#pragma once

#include <cstdint>
#include <span>

#include "base/function_ref.h"
#include "base/ids.h"
#include "tensor/matrix.h"

namespace nibble {

// A parallel region costs about as much as this many floats of the cheapest operation.
inline constexpr int64_t kFewFloats = 8192;

class ThreadPool;
struct KernelTable;

// A row's bits depend on that row alone. Reductions use 32
// virtual lanes and one fixed tree; exp, tanh, sin and cos are nibble's own polynomials
// (kernels/ref/math.h states their error bounds).

// weight and bias: [cols].
struct NormParams {
  const float* weight = nullptr;  // null: no gain (RmsNorm only)
  const float* bias = nullptr;    // null: none (RmsNorm never has one)
  float eps = 0;
};

// Runs fn(row) for all rows: on the pool, whole rows per thread, when rows · cols floats are worth
// a parallel region.
void ForRows(ThreadPool& pool, int rows, int cols, FunctionRef<void(int row)> fn);

// Operations on one row of n floats; y may alias an input.

// y = x / sqrt(mean(x²) + eps) · weight (Zhang & Sennrich 2019).
void RmsNorm(const KernelTable& kernels, const NormParams& norm, const float* x, int n, float* y);

// y = (x - mean) / sqrt(var + eps) · weight + bias.
void LayerNorm(const KernelTable& kernels, const NormParams& norm, const float* x, int n, float* y);

enum class Gate : uint8_t { kSilu, kGeluTanh, kGeluErf };

// y = gate(a) · b; b null: y = gate(a).
void ApplyGate(const KernelTable& kernels, Gate gate, const float* a, const float* b, int n,
               float* y);

// y += x.
void Add(const KernelTable& kernels, const float* x, int n, float* y);

// x *= factor.
void Scale(const KernelTable& kernels, float factor, int n, float* x);

// x = cap · tanh(x / cap), rows of a matrix.
void SoftCap(const KernelTable& kernels, ThreadPool& pool, float cap, MatrixView<float> x);

// Rotary position embedding (Su et al. 2021) of the first 2 · pairs channels of every head.
struct RopeTable {
  // cos and sin [positions][pairs], scaled by the attention factor of YaRN/LongRoPE where it has
  // one.
  MatrixView<const float> cos;
  MatrixView<const float> sin;
  bool interleaved = false;  // pair i is (2i, 2i+1) (GGUF llama), else (i, i + pairs) (HF)
};

// Rotates one row x [heads * head_dim] in place by row `at` of the table.
void Rope(const KernelTable& kernels, const RopeTable& table, int at, int heads,
          std::span<float> x);

// Fills one row of a table: cos and sin of position · inv_freq[i], times factor. Scalar and the
// same on every machine (own sin and cos with argument reduction in double).
void FillRopeRow(Position position, std::span<const float> inv_freq, float factor, float* cos,
                 float* sin);

// Vocabulary-sized passes for sampling and evaluation.
struct LogSumExp {
  float max = 0;
  double log_sum_exp = 0;  // ln Σ exp(x)
};
LogSumExp ComputeLogSumExp(const KernelTable& kernels, std::span<const float> logits);

// One row of the base model's logits beside the candidate's, with their sums.
struct LogitsPair {
  std::span<const float> base;
  std::span<const float> candidate;
  LogSumExp base_sum;
  LogSumExp candidate_sum;
};

// Kullback-Leibler divergence Σ p ln(p / q) of the candidate's distribution q from the base's p, in
// nats; 0 for equal rows. Error: at most 2^-18 of Σ p |ln(p / q)| and 6e-6, that of the sums (some
// 1e-7 in practice), whatever the vocabulary.
double ComputeDivergence(const KernelTable& kernels, const LogitsPair& row);

}  // namespace nibble
