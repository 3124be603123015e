#pragma once

#include <optional>
#include <span>

#include "kernels/matmul.h"

namespace nibble {

// The second product of LLM.int8() (arXiv 2208.07339 §3.2; bitsandbytes): the columns of a row of x
// that its codes leave out, times the weights decoded to floats.
//
//   y[t][r] += Σ_j x[t][j] · (w[r][j] · row scale)   j ascending over the outliers of row t,
//   each product and sum rounded
//
// Weights: an 8-bit grouped format (kernels/panel_layout.h).
void AddOutliers(ThreadPool& pool, const ActivationBlock& x, const MatmulTask& task,
                 std::optional<std::span<const int>> token_rows);

}  // namespace nibble
