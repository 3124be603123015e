#include "quantize/tensor_view.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "container/hf_linear.h"
#include "model/config/architecture.h"
#include "model/config/model_file.h"
#include "model/rope_frequencies.h"

namespace nibble {
namespace {

// What llama.cpp's converter stores for Llama 3.1: how much each frequency is divided by.
std::vector<float> Llama3Divisors(const RopeConfig& rope) {
  RopeConfig plain = rope;
  plain.scaling = RopeScaling::kNone;
  const std::vector<float> base = ComputeRopeFrequencies(plain, 0).inv_freq;
  const std::vector<float> scaled = ComputeRopeFrequencies(rope, 0).inv_freq;
  std::vector<float> divisors;
  for (size_t i = 0; i < base.size(); ++i) divisors.push_back(base[i] / scaled[i]);
  return divisors;
}

// Walks a Hugging Face model's tensors in the order of the layers.
class HfWalk {
 public:
  explicit HfWalk(const ModelFile& model) : model_(model), config_(model.config()) {}

  Result<std::vector<TensorView>> Views() {
    NIBBLE_TRY(const Architecture* architecture, FindArchitecture(config_.architecture));
    naming_ = &architecture->gguf;
    paired_ = architecture->gguf_interleaved_rope;
    const ModelTensors& tensors = model_.tensors();
    AddRopes();
    NIBBLE_RETURN_IF_ERROR(AddMatrix(naming_->embedding, tensors.embedding));
    NIBBLE_RETURN_IF_ERROR(AddMatrix(naming_->positions, tensors.positions));
    for (size_t i = 0; i < tensors.layers.size(); ++i) {
      NIBBLE_RETURN_IF_ERROR(AddLayer(i, tensors.layers[i]));
    }
    NIBBLE_RETURN_IF_ERROR(AddNorm(naming_->output_norm, tensors.output_norm));
    if (!tensors.tie_stored_output || !model_.OutputEqualsEmbedding()) {
      NIBBLE_RETURN_IF_ERROR(AddMatrix(naming_->output, tensors.output.weight));
      NIBBLE_RETURN_IF_ERROR(Add(
          {.name = std::string(naming_->output) + ".bias", .tensor = tensors.output.bias.tensor}));
    }
    return std::move(views_);
  }

 private:
  Status Add(TensorView view) {
    if (view.tensor == nullptr || !seen_.insert(view.tensor).second) return {};
    if (!view.tensor->format) {
      return BadInput("'{}' is {}, which no GGUF file holds", view.tensor->name,
                      view.tensor->type_name);
    }
    views_.push_back(std::move(view));
    return {};
  }

  Status AddMatrix(std::string_view name, const MatrixRef& matrix) {
    return Add({.name = std::string(name) + ".weight",
                .tensor = matrix.tensor,
                .transposed = matrix.transposed});
  }

  Status AddNorm(const std::string& name, const NormRef& norm) {
    NIBBLE_RETURN_IF_ERROR(Add({.name = name + ".weight",
                                .tensor = norm.weight.tensor,
                                .add = config_.norm_plus_one ? 1.0F : 0.0F}));
    return Add({.name = name + ".bias", .tensor = norm.bias.tensor});
  }
  Status AddNorm(std::string_view name, const NormRef& norm) {
    return AddNorm(std::string(name), norm);
  }

  Status AddLayer(size_t index, const LayerTensors& layer) {
    const std::string prefix = fmt::format("{}{}.", naming_->layers, index);
    for (size_t n = 0; n < kNorms; ++n) {
      NIBBLE_RETURN_IF_ERROR(AddNorm(prefix + std::string(naming_->norms[n]), layer.norms[n]));
    }
    for (size_t l = 0; l < kLinears; ++l) {
      const auto linear = static_cast<Linear>(l);
      const LinearRef& ref = layer.linears[l];
      const std::string name = prefix + std::string(naming_->linears[l]);
      const bool paired = paired_ && (linear == Linear::kQuery || linear == Linear::kKey);
      const int head = paired ? config_.head_dim : 0;
      NIBBLE_RETURN_IF_ERROR(Add({.name = name + ".weight",
                                  .tensor = ref.weight.tensor,
                                  .transposed = ref.weight.transposed,
                                  .paired_head = head}));
      NIBBLE_RETURN_IF_ERROR(
          Add({.name = name + ".bias", .tensor = ref.bias.tensor, .paired_head = head}));
    }
    return {};
  }

  void AddRopes() {
    if (config_.ropes.empty()) return;
    const RopeConfig& rope = config_.ropes[0];
    const auto values = [&](const char* name, std::vector<float> of) {
      views_.push_back({.name = name, .values = std::move(of)});
    };
    if (rope.scaling == RopeScaling::kLlama3) values("rope_freqs.weight", Llama3Divisors(rope));
    if (rope.scaling != RopeScaling::kLongRope) return;
    values("rope_factors_long.weight", {rope.long_factor.begin(), rope.long_factor.end()});
    values("rope_factors_short.weight", {rope.short_factor.begin(), rope.short_factor.end()});
  }

  const ModelFile& model_;
  const ModelConfig& config_;
  const TensorNaming* naming_ = nullptr;
  bool paired_ = false;
  std::set<const SourceTensor*> seen_;  // linears of one stored tensor are written once
  std::vector<TensorView> views_;
};

}  // namespace

uint64_t TensorView::cols() const {
  if (tensor == nullptr) return values.size();
  if (transposed) return tensor->rows();
  return paired_head + split_head > 0 && tensor->rank == 1 ? 1 : tensor->cols();
}

uint64_t TensorView::rows() const {
  if (tensor == nullptr) return 1;
  return tensor->elements() / std::max<uint64_t>(cols(), 1);
}

std::vector<uint64_t> TensorView::Shape() const {
  if (tensor == nullptr) return {values.size()};
  std::vector<uint64_t> shape(tensor->shape.begin(), tensor->shape.begin() + tensor->rank);
  if (transposed) std::swap(shape.front(), shape.back());
  return shape;
}

uint64_t TensorView::StoredRow(uint64_t row) const {
  if (split_head > 0) {
    const auto half = static_cast<uint64_t>(split_head) / 2;
    const uint64_t at = row % (2 * half);
    return row - at + 2 * (at % half) + at / half;
  }
  if (paired_head == 0) return row;
  const auto head = static_cast<uint64_t>(paired_head);
  const uint64_t in_head = row % head;
  return row - in_head + (in_head % 2) * (head / 2) + in_head / 2;
}

void TensorView::ReadRow(uint64_t row, float* out) const {
  const auto count = static_cast<size_t>(cols());
  if (tensor == nullptr) {
    std::copy(values.begin(), values.end(), out);
    return;
  }
  const FormatTraits& traits = TraitsOf(*tensor->format);
  if (transposed) {
    const auto stride = static_cast<size_t>(tensor->cols());
    const auto block = static_cast<size_t>(traits.block_elements);
    const auto in_block = static_cast<size_t>(row) % block;
    std::vector<float> values_of_block(block);
    for (size_t c = 0; c < count; ++c) {
      const size_t first = c * stride + static_cast<size_t>(row) - in_block;
      traits.decode(tensor->bytes.data() + traits.RowBytes(first), values_of_block.data(), block);
      out[c] = values_of_block[in_block];
    }
  } else if (tensor->linear != nullptr) {
    DequantiseHfRows(*tensor->linear, static_cast<int>(StoredRow(row)), 1, out);
  } else {
    traits.decode(tensor->bytes.data() + StoredRow(row) * traits.RowBytes(count), out, count);
  }
  for (size_t c = 0; c < count && add != 0; ++c) out[c] += add;
}

Result<std::vector<TensorView>> GgufTensors(const ModelFile& model) {
  if (!model.is_gguf()) return HfWalk(model).Views();
  std::vector<TensorView> views;
  for (const SourceTensor& tensor : model.source().tensors()) {
    if (!tensor.format) {
      return BadInput("'{}' is {}, which cannot be copied", tensor.name, tensor.type_name);
    }
    views.push_back({.name = std::string(tensor.name), .tensor = &tensor});
  }
  return views;
}

}  // namespace nibble
