#include "model/config/model_tensors.h"

#include <algorithm>

namespace nibble {

MatrixShape LinearShape(const ModelConfig& config, Linear linear) {
  const int query = config.heads * config.head_dim;
  const int kv = config.kv_heads * config.head_dim;
  switch (linear) {
    case Linear::kQuery:
      return {query, config.width};
    case Linear::kKey:
    case Linear::kValue:
      return {kv, config.width};
    case Linear::kOutput:
      return {config.width, query};
    case Linear::kGate:
    case Linear::kUp:
      return {config.ffn_width, config.width};
    case Linear::kDown:
      return {config.width, config.ffn_width};
  }
  return {};
}

namespace {

class TensorFinder {
 public:
  TensorFinder(const TensorSource& source, const ModelConfig& config, const TensorRules& rules)
      : source_(source), config_(config), rules_(rules), used_(source.tensors().size()) {}

  Result<ModelTensors> Find();

 private:
  // The stored tensor of a name under any prefix, marked as used; null when absent.
  const SourceTensor* Take(const std::string& name);
  Result<MatrixRef> Matrix(const std::string& name, MatrixShape expected);
  Result<VectorRef> Vector(const std::string& name, int size, bool optional);
  Result<NormRef> FindNorm(const std::string& name, int size);
  Status FindLinears(const std::string& prefix, LayerTensors& layer);
  Status FindNorms(const std::string& prefix, LayerTensors& layer);
  Status FindOutput(ModelTensors& model);
  Status CheckAllUsed() const;
  std::string Expected(const std::string& name) const {
    return std::string(rules_.prefixes.front()) + name;
  }

  const TensorSource& source_;
  const ModelConfig& config_;
  const TensorRules& rules_;
  std::vector<bool> used_;
  int64_t parameters_ = 0;
};

const SourceTensor* TensorFinder::Take(const std::string& name) {
  for (const std::string_view prefix : rules_.prefixes) {
    const SourceTensor* tensor = source_.Find(std::string(prefix) + name);
    if (tensor == nullptr) continue;
    const auto index = static_cast<size_t>(tensor - source_.tensors().data());
    if (!used_[index]) parameters_ += static_cast<int64_t>(tensor->elements());
    used_[index] = true;
    return tensor;
  }
  return nullptr;
}

Status CheckFormat(const SourceTensor& tensor) {
  if (tensor.format) return {};
  return BadInput("tensor '{}': type {} is not a weight format", tensor.name, tensor.type_name);
}

Result<MatrixRef> TensorFinder::Matrix(const std::string& name, MatrixShape expected) {
  const SourceTensor* tensor = Take(name);
  if (tensor == nullptr) {
    return BadInput("tensor '{}' is missing (expected {} x {})", Expected(name), expected.rows,
                    expected.cols);
  }
  if (tensor->rank != 2 || tensor->shape[0] != static_cast<uint64_t>(expected.rows) ||
      tensor->shape[1] != static_cast<uint64_t>(expected.cols)) {
    return BadInput("tensor '{}': expected shape {} x {}, found {}", tensor->name, expected.rows,
                    expected.cols, tensor->ShapeString());
  }
  NIBBLE_RETURN_IF_ERROR(CheckFormat(*tensor));
  const FormatTraits& traits = TraitsOf(*tensor->format);
  if (tensor->cols() % static_cast<uint64_t>(traits.block_elements) != 0) {
    return BadInput("tensor '{}': rows of {} are not whole {} blocks of {}", tensor->name,
                    tensor->cols(), traits.name, traits.block_elements);
  }
  return MatrixRef{.tensor = tensor, .first_row = 0, .rows = expected.rows, .cols = expected.cols};
}

Result<VectorRef> TensorFinder::Vector(const std::string& name, int size, bool optional) {
  const SourceTensor* tensor = Take(name);
  if (tensor == nullptr) {
    if (optional) return VectorRef{};
    return BadInput("tensor '{}' is missing (expected {})", Expected(name), size);
  }
  if (tensor->rank != 1 || tensor->shape[0] != static_cast<uint64_t>(size)) {
    return BadInput("tensor '{}': expected shape {}, found {}", tensor->name, size,
                    tensor->ShapeString());
  }
  NIBBLE_RETURN_IF_ERROR(CheckFormat(*tensor));
  if (tensor->shape[0] % static_cast<uint64_t>(TraitsOf(*tensor->format).block_elements) != 0) {
    return BadInput("tensor '{}': {} values are not whole {} blocks", tensor->name, size,
                    tensor->type_name);
  }
  return VectorRef{.tensor = tensor, .first = 0, .size = size};
}

Result<NormRef> TensorFinder::FindNorm(const std::string& name, int size) {
  NormRef norm;
  NIBBLE_TRY(norm.weight, Vector(name + ".weight", size, false));
  if (config_.norm == NormKind::kLayer) {
    NIBBLE_TRY(norm.bias, Vector(name + ".bias", size, false));
  }
  return norm;
}

// Linears that share a name are one tensor: their rows follow each other.
Status TensorFinder::FindLinears(const std::string& prefix, LayerTensors& layer) {
  const auto& names = rules_.naming->linears;
  for (size_t i = 0; i < kLinears; ++i) {
    if (names[i].empty()) continue;
    const MatrixShape own = LinearShape(config_, static_cast<Linear>(i));
    MatrixShape whole{.rows = 0, .cols = own.cols};
    int first = 0;
    for (size_t j = 0; j < kLinears; ++j) {
      if (names[j] != names[i]) continue;
      const int rows = LinearShape(config_, static_cast<Linear>(j)).rows;
      whole.rows += rows;
      if (j < i) first += rows;
    }
    const bool transposed = rules_.naming->transposed;
    const MatrixShape stored = transposed ? MatrixShape{whole.cols, whole.rows} : whole;
    const std::string name = prefix + std::string(names[i]);
    LinearRef& linear = layer.linears[i];
    NIBBLE_TRY(linear.weight, Matrix(name + ".weight", stored));
    linear.weight.first_row = first;
    linear.weight.rows = own.rows;
    linear.weight.cols = own.cols;
    linear.weight.transposed = transposed;
    const SourceTensor& tensor = *linear.weight.tensor;
    if (transposed && (TraitsOf(*tensor.format).block_elements != 1 || tensor.linear != nullptr)) {
      return BadInput("tensor '{}': a transposed weight of type {} is not supported",
                      linear.weight.tensor->name, linear.weight.tensor->type_name);
    }
    NIBBLE_TRY(linear.bias, Vector(name + ".bias", whole.rows, true));
    if (linear.bias) {
      if (TraitsOf(*linear.bias.tensor->format).block_elements != 1) {
        return BadInput("tensor '{}': a bias of type {} is not supported", linear.bias.tensor->name,
                        linear.bias.tensor->type_name);
      }
      linear.bias.first = first;
      linear.bias.size = own.rows;
    }
  }
  return {};
}

Status TensorFinder::FindNorms(const std::string& prefix, LayerTensors& layer) {
  for (size_t i = 0; i < kNorms; ++i) {
    const std::string_view name = rules_.naming->norms[i];
    if (name.empty()) continue;
    const auto norm = static_cast<Norm>(i);
    const bool head = norm == Norm::kQuery || norm == Norm::kKey;
    NIBBLE_TRY(layer.norms[i],
               FindNorm(prefix + std::string(name), head ? config_.head_dim : config_.width));
  }
  return {};
}

Status TensorFinder::FindOutput(ModelTensors& model) {
  const std::string name(rules_.naming->output);
  NIBBLE_TRY(model.output.bias, Vector(name + ".bias", config_.vocabulary, true));
  const int64_t before = parameters_;
  const std::string weight = name + ".weight";
  const SourceTensor* stored = Take(weight);
  if (stored == nullptr && !rules_.tie_forbidden) return {};
  NIBBLE_TRY(model.output.weight, Matrix(weight, {config_.vocabulary, config_.width}));
  model.tie_stored_output =
      rules_.tie && stored->linear == nullptr && stored->format == model.embedding.tensor->format;
  if (model.tie_stored_output) parameters_ = before;
  return {};
}

Status TensorFinder::CheckAllUsed() const {
  for (size_t i = 0; i < used_.size(); ++i) {
    if (used_[i]) continue;
    const SourceTensor& tensor = source_.tensors()[i];
    const auto starts = [&](std::string_view part) { return tensor.name.starts_with(part); };
    const auto ends = [&](std::string_view part) { return tensor.name.ends_with(part); };
    if (std::ranges::any_of(rules_.ignored_prefixes, starts)) continue;
    if (std::ranges::any_of(rules_.ignored_suffixes, ends)) continue;
    return BadInput("tensor '{}' ({} {}) is not part of a {} model with {} layers", tensor.name,
                    tensor.type_name, tensor.ShapeString(), config_.architecture,
                    config_.layers.size());
  }
  return {};
}

Result<ModelTensors> TensorFinder::Find() {
  const TensorNaming& naming = *rules_.naming;
  ModelTensors model;
  NIBBLE_TRY(model.embedding, Matrix(std::string(naming.embedding) + ".weight",
                                     {config_.vocabulary, config_.width}));
  // One row of it is read at a time, by its place in the file.
  if (model.embedding.tensor->linear != nullptr) {
    return BadInput("tensor '{}': a quantised embedding is not supported",
                    model.embedding.tensor->name);
  }
  if (!naming.positions.empty()) {
    NIBBLE_TRY(model.positions, Matrix(std::string(naming.positions) + ".weight",
                                       {config_.context_length, config_.width}));
    if (model.positions.tensor->linear != nullptr) {
      return BadInput("tensor '{}': quantised positions are not supported",
                      model.positions.tensor->name);
    }
  }
  model.layers.resize(config_.layers.size());
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const std::string prefix = std::string(naming.layers) + std::to_string(i) + ".";
    NIBBLE_RETURN_IF_ERROR(FindNorms(prefix, model.layers[i]));
    NIBBLE_RETURN_IF_ERROR(FindLinears(prefix, model.layers[i]));
  }
  NIBBLE_TRY(model.output_norm, FindNorm(std::string(naming.output_norm), config_.width));
  NIBBLE_RETURN_IF_ERROR(FindOutput(model));
  NIBBLE_RETURN_IF_ERROR(CheckAllUsed());
  model.parameters = parameters_;
  return model;
}

}  // namespace

Result<ModelTensors> FindTensors(const TensorSource& source, const ModelConfig& config,
                                 const TensorRules& rules) {
  return TensorFinder(source, config, rules).Find();
}

}  // namespace nibble
