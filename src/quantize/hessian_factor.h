#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "quantize/hessian.h"

namespace nibble {

class ThreadPool;

struct FactorOptions {
  double damping = 0.01;   // share of the mean diagonal that is added to it
  bool act_order = false;  // columns by falling diagonal, else as they are
};

// What GPTQ's error feedback needs of H, one for all linears with this input: the upper factor U of
// the damped inverse, H⁻¹ = Uᵀ U, columns in the order in which they are quantised.
struct HessianFactor {
  int cols = 0;
  std::vector<int> order;     // [cols] column at each position; equal ones keep their order
  std::vector<uint8_t> dead;  // [cols] of columns: inputs that were always zero
  int dead_count = 0;
  std::vector<float> upper;  // [cols][cols] by position, zeros below the diagonal
  double damping = 0;        // as it was used
  int raised = 0;            // how often it had to be raised; to be reported

  const float* row(int position) const { return upper.data() + ptrdiff_t{position} * cols; }
};

// A dead column's diagonal becomes 1 (its weights are to be 0). Where the matrix is not positive
// definite the damping is doubled, from at least 0.001, and tried again; `raised` says how often.
// The same bits for any number of threads. Errors: Hessian::Check's, a damping that is not in [0,
// 1], none up to 1 that is enough.
Result<HessianFactor> FactorHessian(const Hessian& hessian, const FactorOptions& options,
                                    ThreadPool& pool);

}  // namespace nibble
