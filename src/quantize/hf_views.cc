#include <set>
#include <string>
#include <utility>

#include "model/config/architecture.h"
#include "model/config/model_file.h"
#include "quantize/tensor_view.h"

namespace nibble {
namespace {

class HfNamesWalk {
 public:
  explicit HfNamesWalk(const ModelFile& model) : model_(model), config_(model.config()) {}

  Result<std::vector<TensorView>> Views() {
    NIBBLE_TRY(const Architecture* architecture, FindArchitecture(config_.architecture));
    naming_ = &architecture->hf;
    from_gguf_ = model_.is_gguf();
    paired_ = from_gguf_ && architecture->gguf_interleaved_rope;
    if (from_gguf_ && architecture->hf_norm_plus_one) norm_add_ = -1;
    const ModelTensors& tensors = model_.tensors();
    AddMatrix(Outer(naming_->embedding), tensors.embedding);
    AddMatrix(Outer(naming_->positions), tensors.positions);
    for (size_t i = 0; i < tensors.layers.size(); ++i) AddLayer(i, tensors.layers[i]);
    AddNorm(Outer(naming_->output_norm), tensors.output_norm);
    if (!tensors.tie_stored_output || !model_.OutputEqualsEmbedding()) {
      const std::string output(naming_->output);
      AddMatrix(output, tensors.output.weight);
      Add({.name = output + ".bias", .tensor = tensors.output.bias.tensor});
    }
    return std::move(views_);
  }

 private:
  std::string Outer(std::string_view name) const {
    return std::string(naming_->outer) + std::string(name);
  }

  // Parts of one stored tensor are written once: what is fused in one container is so in the other.
  void Add(TensorView view) {
    if (view.tensor == nullptr || !seen_.insert(view.tensor).second) return;
    views_.push_back(std::move(view));
  }
  void AddMatrix(const std::string& name, const MatrixRef& matrix) {
    Add({.name = name + ".weight", .tensor = matrix.tensor});
  }
  void AddNorm(const std::string& name, const NormRef& norm) {
    Add({.name = name + ".weight", .tensor = norm.weight.tensor, .add = norm_add_});
    Add({.name = name + ".bias", .tensor = norm.bias.tensor});
  }
  void AddLayer(size_t index, const LayerTensors& layer) {
    const std::string prefix = Outer(naming_->layers) + std::to_string(index) + ".";
    for (size_t n = 0; n < kNorms; ++n) {
      AddNorm(prefix + std::string(naming_->norms[n]), layer.norms[n]);
    }
    for (size_t l = 0; l < kLinears; ++l) {
      const auto linear = static_cast<Linear>(l);
      const LinearRef& ref = layer.linears[l];
      const std::string name = prefix + std::string(naming_->linears[l]);
      const bool rotated = linear == Linear::kQuery || linear == Linear::kKey;
      const int head = paired_ && rotated ? config_.head_dim : 0;
      Add({.name = name + ".weight",
           .tensor = ref.weight.tensor,
           .transposed = ref.weight.transposed != naming_->transposed,
           .split_head = head});
      Add({.name = name + ".bias", .tensor = ref.bias.tensor, .split_head = head});
    }
  }

  const ModelFile& model_;
  const ModelConfig& config_;
  const TensorNaming* naming_ = nullptr;
  bool from_gguf_ = false;
  bool paired_ = false;
  float norm_add_ = 0;
  std::set<const SourceTensor*> seen_;
  std::vector<TensorView> views_;
};

}  // namespace

Result<std::vector<TensorView>> HfTensors(const ModelFile& model) {
  return HfNamesWalk(model).Views();
}

}  // namespace nibble
