#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "tensor/matrix.h"

namespace nibble {

class ThreadPool;

// Least and largest value that each channel of an input took.
struct ChannelRange {
  std::vector<float> min;
  std::vector<float> max;

  // Takes more inputs in. x: [tokens][channels].
  void Add(MatrixView<const float> x);
};

// What the scales follow from; the same α gives other scales under each.
enum class SmoothStatistics : uint8_t {
  kPaper,          // max |X| and max |W|
  kLlmCompressor,  // max X − min X and 2 max |W|
};

struct SmoothOptions {
  double alpha = 0.5;
  SmoothStatistics statistics = SmoothStatistics::kPaper;
};

// SmoothQuant (Xiao et al. 2023, arXiv 2211.10438): s_j = x_j^α / w_j^(1−α), w over all consumers
// of the input. The input is to be divided by s (quantize/fold.h), the consumers' columns
// multiplied. Errors: α outside of 0 … 1, shapes that do not fit, a NaN or infinity.
Result<std::vector<float>> SmoothScales(const ChannelRange& input,
                                        std::span<const MatrixView<const float>> consumers,
                                        const SmoothOptions& options, ThreadPool& pool);

}  // namespace nibble
