#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/activations.h"
#include "kernels/matmul.h"
#include "model/config/architecture.h"
#include "model/config/model_file.h"
#include "platform/memory.h"

namespace nibble {

struct PackedLinear {
  PackedMatrix weight;
  const float* bias = nullptr;  // [rows] or none
};

// What the input of a checkpoint's quantised linear becomes. order: its permutation where that is
// kept; null in a plan stands for the linear's own.
ActForm InputForm(const SourceTensor& tensor, const int32_t* order = nullptr);

struct PackedNorm {
  const float* weight = nullptr;
  const float* bias = nullptr;  // LayerNorm only
};

struct PackedLayer {
  std::array<PackedLinear, kLinears> linears;
  std::array<PackedNorm, kNorms> norms;
  const PackedLinear& operator[](Linear linear) const {
    return linears[static_cast<size_t>(linear)];
  }
  const PackedNorm& operator[](Norm norm) const { return norms[static_cast<size_t>(norm)]; }
};

// A model's weights in kernel order: views into one arena.
struct ModelWeights {
  PackedMatrix embedding;
  PackedMatrix positions;
  PackedLinear output;  // no weight: tied to the embedding
  PackedNorm output_norm;
  std::vector<PackedLayer> layers;
  size_t bytes_per_step = 0;  // all but embedding rows

  const PackedMatrix& head() const { return output.weight.empty() ? embedding : output.weight; }
};

struct WeightSizes {
  size_t arena_bytes = 0;    // what PackWeights fills, to the byte
  size_t scratch_bytes = 0;  // while loading: the largest transposed matrix (gpt2), else 0
};
// Where the last matrix comes from, for a file with ModelTensors::tie_stored_output; for others
// there is no choice. Before the two are compared nobody knows: kStored is the larger.
enum class OutputChoice : uint8_t { kStored, kEmbedding };

WeightSizes MeasureWeights(const ModelFile& file, OutputChoice output = OutputChoice::kStored);

// Packs every tensor into the arena (arena_bytes, 64-byte aligned), tensor by tensor, each in
// parallel, and gives the file's pages back behind itself.
Result<ModelWeights> PackWeights(const ModelFile& file, OutputChoice output,
                                 std::span<std::byte> arena, ThreadPool& pool);

// One matrix of a file in kernel order. storage: what holds it.
Result<PackedMatrix> PackOne(const ModelFile& file, const MatrixRef& ref, AlignedBuffer& storage,
                             ThreadPool& pool);
// The values of a stored vector, each plus `add`; empty where there is none.
std::vector<float> ReadVector(const VectorRef& ref, float add = 0);

}  // namespace nibble
