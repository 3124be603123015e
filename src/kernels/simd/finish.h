#pragma once

#include <cstdint>

#include "kernels/matmul_kernels.h"
#include "kernels/panel_layout.h"
#include "kernels/simd/lanes.h"

namespace nibble::NIBBLE_ISA_NS {
namespace {

// y = acc (· row scale) (+ bias) (+ y) for the 16 rows of a panel and the tokens of a run; token
// t's sums are at acc + t · stride.
inline void FinishPanel(const MatmulJob& job, int panel, const TokenRun& run, const float* acc,
                        int stride) {
  const int row = panel * kPanelRows;
  const int rows = job.rows - row < kPanelRows ? job.rows - row : kPanelRows;
  for (int t = 0; t < run.count; ++t, acc += stride) {
    float* y = job.y + (run.y_row + t) * job.y_stride + row;
    if (rows == kPanelRows) {
      F32x16 sum = LoadF(acc);
      if (job.row_scale != nullptr) sum = Mul(sum, LoadF(job.row_scale + row));
      if (job.bias != nullptr) sum = Add(sum, LoadF(job.bias + row));
      if (job.accumulate) sum = Add(LoadF(y), sum);
      StoreF(y, sum);
      continue;
    }
    for (int r = 0; r < rows; ++r) {
      float sum = acc[r];
      if (job.row_scale != nullptr) sum *= job.row_scale[row + r];
      if (job.bias != nullptr) sum += job.bias[row + r];
      y[r] = job.accumulate ? y[r] + sum : sum;
    }
  }
}

}  // namespace
}  // namespace nibble::NIBBLE_ISA_NS
