#pragma once

#include <cstddef>

namespace nibble {

// The float loops of the methods, compiled once per instruction set; all give the same bits: a lane
// is an output, sums run in the order written, products are rounded before they are added.
inline constexpr int kPanel = 16;  // lanes

struct DenseKernels {
  // sums[i][j] = Σ_t a[t][i] · b[t][j] for 16 × 16 outputs. a, b: [count][16]; sums: [16][16].
  void (*products)(const float* a, const float* b, int count, float* sums);
  // columns[j][lane] −= Σ_k errors[k][lane] · u[k · u_stride + j], k = 0 … count − 1, for
  // j = begin … end − 1. columns: [...][16], errors: [count][16].
  void (*subtract)(float* columns, const float* errors, const float* u, ptrdiff_t u_stride,
                   int count, int begin, int end);
};

// For this processor (NIBBLE_ISA counts).
const DenseKernels& DenseKernelsHere();

}  // namespace nibble
