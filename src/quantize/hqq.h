#pragma once

#include <cstddef>
#include <vector>

#include "base/result.h"
#include "tensor/matrix.h"

namespace nibble {

class ThreadPool;

struct HqqOptions {
  int bits = 4;    // 2 to 8
  int group = 64;  // inputs that share scale and zero; the last may be shorter
  double p = 0.7;
  double beta = 10;
  double kappa = 1.01;
  int iterations = 20;
};

// w ≈ (code − zero) · scale, with zeros that are no integers.
struct HqqMatrix {
  int rows = 0;
  int cols = 0;
  int bits = 4;
  int group = 64;
  std::vector<uint8_t> codes;  // [rows][cols]
  std::vector<float> scales;   // [rows][groups()]
  std::vector<float> zeros;    // [rows][groups()]
  int rounds = 0;              // of the solver
  double mean_error = 0;       // mean |w − ŵ| of the codes as they are

  int groups() const { return (cols + group - 1) / group; }
};

// HQQ (Badri and Shaji 2023), no calibration: a half-quadratic solver for zeros under which the
// p-norm of the error is least; scales stay range / levels. Stops for the whole matrix when the
// mean error no longer falls. Errors: bits, group, a weight that is NaN or infinite.
Result<HqqMatrix> QuantizeHqq(MatrixView<const float> w, const HqqOptions& options,
                              ThreadPool& pool);
void Dequantize(const HqqMatrix& matrix, MatrixView<float> out);

// The same as rows of GGUF's q4_1 (4 bits) or q5_1 (5 bits) blocks: d = scale, m = −zero · scale as
// f16, each code again the nearest under them. Errors: other bits, groups that blocks of 32 do not
// divide, columns likewise.
Result<std::vector<std::byte>> HqqBlocks(MatrixView<const float> w, const HqqMatrix& matrix);

}  // namespace nibble
