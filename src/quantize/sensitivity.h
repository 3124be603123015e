#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "format/format.h"

namespace nibble {

class ModelFile;
class ThreadPool;
struct KernelTable;
struct SourceTensor;

// A matrix of the model to be rounded to a type, alone.
struct SensitivityProbe {
  const SourceTensor* tensor = nullptr;
  Format format = Format::kF32;
};

struct SensitivityOptions {
  std::vector<std::vector<TokenId>> sequences;  // of one length, at least 4 tokens
  size_t memory = size_t{1} << 30;              // of activations; more lie in a file
  std::filesystem::path folder = {};            // where that file goes
  std::function<void(double fraction, const std::string& what)> progress = {};
};

struct SensitivityResult {
  // Of each probe: the mean divergence of the model with that one matrix rounded from the model as
  // it is, nats a prediction.
  std::vector<double> divergence;
  int predictions = 0;  // the second half of every sequence without its last
};

// One pass over the model, layer by layer in f32, all probes side by side: each starts as a copy
// of the stream in front of its layer and is computed along from there, so every layer is loaded
// once and only one is in memory. Errors: a probe of a tensor that is no matrix of the model, a
// weight that is NaN or infinite, the file system.
Result<SensitivityResult> MeasureSensitivity(const ModelFile& model,
                                             const std::vector<SensitivityProbe>& probes,
                                             const SensitivityOptions& options,
                                             const KernelTable& kernels, ThreadPool& pool);

}  // namespace nibble
