#pragma once

#include <span>

#include "base/ids.h"
#include "tensor/matrix.h"

namespace nibble {

class ThreadPool;
struct KernelTable;

// All functions here work row by row; a row's bits depend on that row alone. Reductions use 32
// virtual lanes and one fixed tree; exp, tanh, sin and cos are nibble's own polynomials
// (kernels/ref/math.h states their error bounds).

// weight and bias: [cols].
struct NormParams {
  const float* weight = nullptr;  // null: no gain (RmsNorm only)
  const float* bias = nullptr;    // null: none (RmsNorm never has one)
  float eps = 0;
};

// y = x / sqrt(mean(x²) + eps) · weight (Zhang & Sennrich 2019). y may alias x.
void RmsNorm(const KernelTable& kernels, ThreadPool& pool, MatrixView<const float> x,
             const NormParams& norm, MatrixView<float> y);

// y = (x - mean) / sqrt(var + eps) · weight + bias.
void LayerNorm(const KernelTable& kernels, ThreadPool& pool, MatrixView<const float> x,
               const NormParams& norm, MatrixView<float> y);

enum class Gate : uint8_t { kSilu, kGeluTanh, kGeluErf };

// y = gate(a) · b; b empty: y = gate(a). y may alias a.
void ApplyGate(const KernelTable& kernels, ThreadPool& pool, Gate gate, MatrixView<const float> a,
               MatrixView<const float> b, MatrixView<float> y);

// y += x.
void Add(const KernelTable& kernels, ThreadPool& pool, MatrixView<const float> x,
         MatrixView<float> y);

// x *= factor.
void Scale(const KernelTable& kernels, ThreadPool& pool, float factor, MatrixView<float> x);

// x = cap · tanh(x / cap).
void SoftCap(const KernelTable& kernels, ThreadPool& pool, float cap, MatrixView<float> x);

// Rotary position embedding (Su et al. 2021) of the first 2 · pairs channels of every head.
struct RopeTable {
  // cos and sin [positions][pairs], scaled by the attention factor of YaRN/LongRoPE where it has
  // one.
  MatrixView<const float> cos;
  MatrixView<const float> sin;
  bool interleaved = false;  // pair i is (2i, 2i+1) (GGUF llama), else (i, i + pairs) (HF)
};

// Rotates x [rows][heads * head_dim] in place; row r stands at positions[r] < table rows.
void Rope(const KernelTable& kernels, ThreadPool& pool, const RopeTable& table,
          std::span<const Position> positions, int heads, MatrixView<float> x);

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

}  // namespace nibble
