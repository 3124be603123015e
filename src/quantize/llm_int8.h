#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "tensor/matrix.h"

namespace nibble {

class ThreadPool;

// LLM.int8() (Dettmers et al. 2022, arXiv 2208.07339): weights as int8 with one scale an output,
// inputs as int8 with one scale a token, and the columns of outliers in floats.
struct Int8Matrix {
  int rows = 0;
  int cols = 0;
  std::vector<int8_t> codes;  // [rows][cols], −127 … 127, ties to even
  std::vector<float> absmax;  // [rows]; w ≈ codes · absmax / 127
};
// Errors: a weight that is NaN or infinite (row and column).
Result<Int8Matrix> QuantizeLlmInt8(MatrixView<const float> w, ThreadPool& pool);

// The columns whose largest input over a calibration reaches the threshold (6 in the paper),
// rising.
std::vector<int> OutlierColumns(std::span<const float> largest_magnitude, float threshold);

// y = x Wᵀ + bias of one token: the definition that faster arithmetic is held to. Outliers are the
// columns where this token's own input reaches the threshold (0: none), or those given; never what
// others in a batch have. x: [cols], y: [rows], bias: [rows] or empty.
struct OutlierRule {
  float threshold = 0;
  std::span<const int> fixed = {};
};
void MultiplyLlmInt8(const Int8Matrix& w, std::span<const float> x, std::span<const float> bias,
                     const OutlierRule& rule, std::span<float> y);

}  // namespace nibble
