#pragma once

#include <vector>

#include "base/result.h"
#include "container/grouped_matrix.h"
#include "quantize/grid.h"
#include "quantize/hessian_factor.h"
#include "tensor/matrix.h"

namespace nibble {

class ThreadPool;

struct GptqOptions {
  GridSpec grid;
  // Grids from the weights as they were, not as they are compensated when their group begins. With
  // an order of the columns the groups then stay consecutive inputs.
  bool static_groups = false;
  int block = 128;
};

struct GptqResult {
  GroupedMatrix matrix;  // group_of is set for groups under act-order that are not static
  std::vector<double> column_losses;  // [cols] Σ over outputs of (w − q)² / (2 U_ii²)
  double loss = 0;                    // their sum
};

// GPTQ (Frantar et al. 2023, arXiv 2210.17323). w: [outputs][inputs]; the order of the columns and
// the damping are the factor's. Dead columns become 0. The same bits for any number of threads.
// Errors: the spec, a weight that is NaN or infinite (row and column), a factor of another width.
Result<GptqResult> QuantizeGptq(MatrixView<const float> w, const HessianFactor& factor,
                                const GptqOptions& options, ThreadPool& pool);

}  // namespace nibble
