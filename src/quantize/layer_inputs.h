#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace nibble {

class LinearTap;
class ModelFile;
class ThreadPool;
struct KernelTable;

struct LayerInputsOptions {
  std::span<const std::vector<TokenId>> sequences;  // of one length, at least one
  size_t memory = size_t{1} << 30;                  // of activations; more lie in a file
  std::filesystem::path folder = {};                // where that file goes
  std::function<void(double fraction, const std::string& what)> progress = {};
};

// Shows a tap the inputs of every layer's linears over all sequences, in f32, with one layer in
// memory: what Decoder::Forward with the same tap shows, but for the output matrix. Sequences come
// in their order within each layer and linear. Errors: memory, the file system.
Status ReadLayerInputs(const ModelFile& model, const LayerInputsOptions& options,
                       const KernelTable& kernels, ThreadPool& pool, LinearTap& tap);

}  // namespace nibble
