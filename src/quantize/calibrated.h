#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "quantize/linear_target.h"
#include "quantize/recipe.h"

namespace nibble {

class ModelFile;
class ThreadPool;
struct KernelTable;

struct CalibratedOptions {
  Recipe recipe;
  std::vector<std::vector<TokenId>> sequences = {};  // of one length; none: inputs are not computed
  bool importance = false;                           // importance of columns, whatever the recipe
  size_t memory = size_t{1} << 30;                   // of activations; more lie in a file
  std::filesystem::path folder = {};                 // where that file goes
  std::function<void(double fraction, const std::string& what)> progress = {};
};

struct CalibratedResult {
  std::vector<std::string> notes;  // what should be known: damping raised, columns that were dead
  size_t activation_bytes = 0;
  bool spilled = false;
};

// Quantises every linear of a model, layer by layer, on one layer in memory. Within a layer [q, k,
// v] → [output] → [gate, up] → [down] ("true sequential"): the inputs of each stage, and of the
// next layer, come from what has been quantised before it. Errors: a weight or an input that is NaN
// or infinite, a Hessian that no damping up to 1 makes positive definite, the file system.
Result<CalibratedResult> QuantizeLinears(const ModelFile& model, const CalibratedOptions& options,
                                         const KernelTable& kernels, ThreadPool& pool,
                                         LinearTarget& target);

}  // namespace nibble
