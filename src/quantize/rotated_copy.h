#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

#include "base/result.h"

namespace nibble {

class ModelFile;
class ThreadPool;

struct RotatedCopyOptions {
  uint64_t seed = 1;
  std::function<void(double done, std::string_view name)> progress = {};
};

// Writes a GGUF model in f32 with the same function and its channels rotated (rotation.h): the
// residual stream by one matrix, the values of every head by another. The gains of norms go into
// the matrices behind them, and an embedding that is the output too becomes two tensors. One tensor
// is in memory at a time. The same bytes on every machine and with any number of threads. Errors:
// no GGUF file, an architecture or a width that cannot be rotated, a weight that is NaN or
// infinite, the file system.
Status WriteRotatedCopy(const ModelFile& model, const std::filesystem::path& path,
                        const RotatedCopyOptions& options, ThreadPool& pool);

// The errors of WriteRotatedCopy that need no work.
Status CheckRotation(const ModelFile& model);

}  // namespace nibble
