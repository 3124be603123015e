#pragma once

#include <array>
#include <string>
#include <vector>

#include "base/result.h"
#include "container/tensor_source.h"
#include "model/config.h"
#include "model/config/architecture.h"

namespace nibble {

// rows = outputs, cols = inputs.
struct MatrixShape {
  int rows = 0;
  int cols = 0;
};
MatrixShape LinearShape(const ModelConfig& config, Linear linear);

// A matrix [rows = outputs][cols = inputs] inside a stored tensor: all of it, or some of its rows
// where several linears are stored as one. Of a transposed tensor {in, out} the rows are columns.
struct MatrixRef {
  const SourceTensor* tensor = nullptr;
  int first_row = 0;
  int rows = 0;
  int cols = 0;
  bool transposed = false;
  explicit operator bool() const { return tensor != nullptr; }
};

// `size` values of a stored vector from `first` on.
struct VectorRef {
  const SourceTensor* tensor = nullptr;
  int first = 0;
  int size = 0;
  explicit operator bool() const { return tensor != nullptr; }
};

struct LinearRef {
  MatrixRef weight;
  VectorRef bias;
};

struct NormRef {
  VectorRef weight;
  VectorRef bias;
};

struct LayerTensors {
  std::array<LinearRef, kLinears> linears;
  std::array<NormRef, kNorms> norms;
  const LinearRef& operator[](Linear linear) const { return linears[static_cast<size_t>(linear)]; }
  const NormRef& operator[](Norm norm) const { return norms[static_cast<size_t>(norm)]; }
};

// Every tensor that a model computes with.
struct ModelTensors {
  MatrixRef embedding;
  MatrixRef positions;  // learned ones only
  LinearRef output;     // no weight: tied to the embedding
  // An output is stored though the config says that it is the embedding: transformers uses it only
  // when the two differ, which takes reading them (ModelFile::OutputEqualsEmbedding). `parameters`
  // leaves it out.
  bool tie_stored_output = false;
  NormRef output_norm;
  std::vector<LayerTensors> layers;
  int64_t parameters = 0;
};

struct TensorRules {
  const TensorNaming* naming = nullptr;
  std::vector<std::string_view> prefixes;          // tried in order before a name
  std::vector<std::string_view> ignored_prefixes;  // tensors of other parts (an image encoder)
  std::vector<std::string_view> ignored_suffixes;
  bool tie = false;            // the config says so: a stored output may be left
  bool tie_forbidden = false;  // the config says no: an absent output is an error
};

// Finds and checks all tensors. Errors name the tensor with the expected and the found shape: one
// is missing, has another shape, or a type that is no weight format; the vocabulary has another
// size; or a tensor is left over that nothing explains.
Result<ModelTensors> FindTensors(const TensorSource& source, const ModelConfig& config,
                                 const TensorRules& rules);

}  // namespace nibble
