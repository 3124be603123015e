#include "quantize/smoothquant.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/scalar_math.h"
#include "platform/thread_pool.h"
#include "quantize/rtn.h"

namespace nibble {

void ChannelRange::Add(MatrixView<const float> x) {
  const auto channels = static_cast<size_t>(x.cols);
  if (min.empty() && x.rows > 0) min = max = {x.row(0), x.row(0) + channels};
  NIBBLE_CHECK(x.rows == 0 || min.size() == channels);
  for (int t = 0; t < x.rows; ++t) {
    const float* row = x.row(t);
    for (size_t c = 0; c < channels; ++c) {
      // A NaN stays: no comparison with it holds.
      min[c] = row[c] >= min[c] ? min[c] : row[c];
      max[c] = row[c] <= max[c] ? max[c] : row[c];
    }
  }
}

Result<std::vector<float>> SmoothScales(const ChannelRange& input,
                                        std::span<const MatrixView<const float>> consumers,
                                        const SmoothOptions& options, ThreadPool& pool) {
  if (!(options.alpha >= 0 && options.alpha <= 1)) {
    return BadInput("smoothquant: alpha: expected 0 to 1, found {}", options.alpha);
  }
  const size_t channels = input.min.size();
  if (channels == 0) return BadInput("smoothquant: expected inputs, found none");
  std::vector<float> weights(channels);
  for (const MatrixView<const float>& w : consumers) {
    if (static_cast<size_t>(w.cols) != channels) {
      return BadInput("smoothquant: a matrix of {} columns, inputs of {}", w.cols, channels);
    }
    NIBBLE_RETURN_IF_ERROR(CheckFinite(w, pool));
    for (int r = 0; r < w.rows; ++r) {
      for (size_t c = 0; c < channels; ++c)
        weights[c] = std::max(weights[c], std::fabs(w.row(r)[c]));
    }
  }
  constexpr float kLeast = 1e-5f;
  const bool paper = options.statistics == SmoothStatistics::kPaper;
  std::vector<float> scales;
  for (size_t c = 0; c < channels; ++c) {
    if (!std::isfinite(input.min[c]) || !std::isfinite(input.max[c])) {
      return BadInput("smoothquant: input channel {}: between {} and {}", c, input.min[c],
                      input.max[c]);
    }
    float x = paper ? std::max(std::fabs(input.min[c]), std::fabs(input.max[c]))
                    : input.max[c] - input.min[c];
    float w = paper ? weights[c] : 2 * weights[c];
    if (!paper && w == 0) {  // llm-compressor's rule for a column of zeros
      scales.push_back(std::max(x, kLeast));
      continue;
    }
    x = std::max(x, kLeast);
    w = std::max(w, kLeast);
    const double s = Pow(double{x}, options.alpha) / Pow(double{w}, 1 - options.alpha);
    scales.push_back(std::max(static_cast<float>(s), kLeast));
  }
  return scales;
}

}  // namespace nibble
