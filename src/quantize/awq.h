#pragma once

#include <span>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "quantize/grid.h"
#include "tensor/matrix.h"

namespace nibble {

class ThreadPool;

// AWQ (Lin et al. 2024, arXiv 2306.00978): input channels of large activations get a larger scale,
// W · diag(s) is rounded, and 1 / s goes into what comes before.

struct AwqOptions {
  GridSpec grid = {.bits = 4, .group = 128, .symmetric = false, .convention = GridConvention::kAwq};
  // s = a^r / (w̄^(1−r) + 1e-4), w̄ the mean of |w| over its group's largest (AutoAWQ,
  // llm-compressor); else the paper's s = a^r.
  bool duo_scaling = true;
  int ratios = 20;  // r = 0, 1/20 … 19/20
};

// Linears that share one input, and what is known of it.
struct AwqSite {
  std::vector<MatrixView<const float>> consumers;  // [outputs][cols]
  std::span<const float> mean_magnitude;           // [cols] mean |x| of every channel
  MatrixView<const float> inputs;                  // [tokens][cols], a sample
};

// The mean square error of what is behind the linears (the whole attention, the whole MLP) when
// their weights are these: Q(W · diag s) · diag(1/s), one for each consumer.
using AwqLoss = FunctionRef<Result<double>(std::span<const MatrixView<const float>> weights)>;

struct AwqScales {
  std::vector<float> scales;   // [cols], √(max · min) = 1
  double ratio = 0;            // r of the best
  double loss = 0;             // with it
  double loss_unscaled = 0;    // with s = 1
  std::vector<double> losses;  // [ratios]
};

// Every ratio is tried, the least loss kept; loss: without it, the mean square error of the
// consumers' own outputs on the sample. Errors: the spec, shapes that do not fit, a weight or input
// that is NaN or infinite, no inputs, those of `loss`.
Result<AwqScales> SearchAwqScales(const AwqSite& site, const AwqOptions& options, ThreadPool& pool,
                                  AwqLoss loss = {});

// The largest magnitude that each group of each output keeps: that of max · (1 − k/20), k = 0 … 9,
// with the least square error at the output on at most 512 of the inputs. [rows][groups]. After the
// scales; the paper leaves query and key matrices out.
Result<std::vector<float>> SearchAwqClip(MatrixView<const float> w, MatrixView<const float> inputs,
                                         const GridSpec& grid, ThreadPool& pool);
// clip: as found. group: GridSpec::GroupOf.
void ApplyClip(MatrixView<float> w, int group, std::span<const float> clip);

}  // namespace nibble
