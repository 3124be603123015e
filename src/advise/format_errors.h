#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "format/kv_format.h"
#include "model/config/format_mix.h"

namespace nibble {

class ModelFile;
class ThreadPool;

// What a mix does to a model's numbers, on a sample of its matrices.
struct SampledMix {
  double squared_error = 0;       // over the squares, weighed by the matrices' sizes
  double seconds_per_weight = 0;  // that encoding and decoding took, all threads together
};

// Of every mix: at most 256 rows of each matrix of four layers and of the output. About a fortieth
// of the work of quantising.
Result<std::vector<SampledMix>> SampleMixes(const ModelFile& model,
                                            std::span<const FormatMix> mixes, ThreadPool& pool);

// The squared error of a cache format over the squares, of independent normal numbers: it orders
// the formats; what keys and values of a model make of them is learnt from measurements.
double KvSquaredError(KvFormat format, int head_dim);

}  // namespace nibble
