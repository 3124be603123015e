#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "container/grouped_matrix.h"
#include "container/hf_scheme.h"
#include "quantize/grid.h"
#include "tensor/matrix.h"

namespace nibble {

class ThreadPool;

// Round to nearest: every weight on its own, no calibration. w: [outputs][inputs]. Per tensor,
// every row repeats the one scale. Errors: the spec, a weight that is NaN or infinite (row and
// column).
Result<GroupedMatrix> QuantizeRtn(MatrixView<const float> w, const GridSpec& spec,
                                  ThreadPool& pool);

// The weights that codes stand for. out: [rows][cols].
void Dequantize(const GroupedMatrix& matrix, MatrixView<float> out, ThreadPool& pool);

// FP8 E4M3 codes (largest 448, saturating, ties to even) with f32 scales: w ≈ scale × code. The
// scale is largest magnitude / 448, rounded to its type; 1 for nothing but zeros.
// granularity: kTensor or kChannel. Errors as QuantizeRtn's.
Result<Fp8Matrix> QuantizeFp8(MatrixView<const float> w, Granularity granularity,
                              ScaleType scale_type, ThreadPool& pool);
void Dequantize(const Fp8Matrix& matrix, MatrixView<float> out);

// One of that shape, codes, scales and zeros 0.
GroupedMatrix EmptyGroupedMatrix(int rows, int cols, const GridSpec& spec);

// The first weight that is NaN or infinite is an error that names its row and column.
Status CheckFinite(MatrixView<const float> w, ThreadPool& pool);

}  // namespace nibble
