#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

#include "base/result.h"
#include "format/format.h"

namespace nibble {

class ModelFile;
class ThreadPool;

struct FloatCopyOptions {
  uint64_t seed = 1;
  Format matrices = Format::kF16;  // or F32, which loses nothing
  // Called between pieces of work: the share of the bytes done, the tensor in hand. False: stop
  // (kCancelled).
  std::function<bool(double done, std::string_view name)> progress = {};
};

// Writes a model as float16 with the same function, its weights off the grid they were quantised
// on: matrices become f16, vectors f32, and the channels of the residual stream, of each FFN and,
// within each KV head, of the values are put in a random order, in every tensor alike. A network
// computes the same whatever the order of its channels (but for rounding: of sums, and of weights
// to f16), while a block of the original's weights is strewn over all blocks of its row: what
// quantising the copy loses is what quantising a float model loses. Rows of queries and keys stay,
// their order is RoPE's.
//
// The same bytes on every machine and with any number of threads. Errors: the model is no GGUF
// file, a weight that is no finite f16 (tensor, row and column), a tensor that cannot be copied,
// the file system.
Status WriteFloatCopy(const ModelFile& model, const std::filesystem::path& path,
                      const FloatCopyOptions& options, ThreadPool& pool);

}  // namespace nibble
