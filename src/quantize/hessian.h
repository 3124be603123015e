#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "tensor/matrix.h"

namespace nibble {

class ThreadPool;

// What an error in a linear's weights costs at its output: H = (2 / n) Σ x xᵀ over its n inputs
// (GPTQ, Frantar et al. 2023, arXiv 2210.17323; the paper's n counts sequences, which changes
// nothing but the losses' unit). Linears that share an input share it.
//
// Sums of 256 tokens in float, those in double: 8 · cols² bytes. The same bits for any number of
// threads, and for any split of the tokens into calls at multiples of 256.
class Hessian {
 public:
  explicit Hessian(int cols);

  int cols() const { return cols_; }
  int64_t tokens() const { return tokens_; }

  // x: [tokens][cols].
  void Add(MatrixView<const float> x, ThreadPool& pool);

  // Errors: no tokens, an input that was NaN or infinite (the column).
  Status Check() const;
  double At(int row, int col) const;  // of H
  // [cols], of H: GPTQ's order and the importance of columns.
  std::vector<double> Diagonal() const;

  // For tests and callers that have H in another way: [cols][cols], symmetric.
  static Hessian FromMatrix(int cols, std::span<const double> matrix);

 private:
  friend class HessianFactorizer;
  int cols_;
  int64_t tokens_ = 0;
  std::vector<double> sums_;  // [cols][cols] Σ x xᵀ; only col ≥ row is kept up
};

}  // namespace nibble
