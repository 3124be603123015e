#pragma once

#include <cstddef>
#include <vector>

#include "base/result.h"
#include "format/format.h"
#include "quantize/hessian_factor.h"
#include "tensor/matrix.h"

namespace nibble {

class ThreadPool;

// What an error of each column costs when the scales of a block are searched.
enum class BlockWeights : uint8_t {
  kDiagonal,     // H_jj: what an importance matrix knows
  kConditional,  // 1 / U_jj²: what is left of it once the columns behind have made up for it
};

struct BlockGptqOptions {
  Format format = Format::kQ4K;
  // Scales from the weights as they were. An order of the columns (act-order) needs it, because a
  // block's columns must lie together; it is implied there.
  bool static_scales = false;
  BlockWeights weights = BlockWeights::kConditional;
  // Rounds of descent on the error at the output behind the feedback: every code, then every scale
  // is moved to where the error is least with all others as they are.
  int passes = 6;
  int block = 128;
};

struct BlockGptqResult {
  std::vector<std::byte> bytes;       // [rows] of the format's rows
  std::vector<double> column_losses;  // of the feedback alone: see GptqResult
  double feedback_loss = 0;           // their sum
  double loss = 0;                    // ½ tr((W − Q) H (W − Q)ᵀ) with H damped, at the end
};

// GPTQ's error feedback where the grid is a GGUF type: q4_0 … q8_0, q2_k … q6_k, iq4_nl, iq4_xs. A
// block's scales are searched, as the format's encoder does it, in its columns as they are
// compensated when it begins; each group's within it again when the group begins. Then cyclic
// descent on the whole quadratic error (as QuantEase, Behdin et al. 2023, arXiv 2309.01885), over
// the codes and the stored scales. w: [outputs][inputs]. The same bits for any number of threads.
// Errors: a format without such blocks, columns that its blocks do not divide, a weight that is NaN
// or infinite (row and column), a factor of another width.
Result<BlockGptqResult> QuantizeGptqBlocks(MatrixView<const float> w, const Hessian& hessian,
                                           const HessianFactor& factor,
                                           const BlockGptqOptions& options, ThreadPool& pool);

}  // namespace nibble
