#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "container/hf_scheme.h"
#include "quantize/encode_tensor.h"
#include "quantize/grid.h"
#include "quantize/linear_target.h"
#include "quantize/tensor_store.h"

namespace nibble {

class ModelFile;
class ThreadPool;

// A layout of Hugging Face folders by name: "gptq", "awq", "w4a16-g128", "w4a16-asym-g128",
// "w8a16-g128", "w8a8", "fp8", "fp8-dynamic", "llm-int8". bf16: the type of the model's floats,
// which compressed-tensors stores scales in. Error: the known names.
Result<HfScheme> HfSchemeFromName(std::string_view name, bool bf16);

// The grid that the scheme's codes lie on, by its toolkit's own conventions.
GridSpec GridOf(const HfScheme& scheme);

// Linears of a Hugging Face folder: matrices of codes in the store, one record a module.
class HfTarget : public LinearTarget {
 public:
  // Checks the model and looks through its linears: those that the layout cannot hold are kept, and
  // named in `kept` beside the output. Errors: a source that is no folder of floats, transposed
  // weights, fused linears where the layout has none.
  static Result<HfTarget> Create(const ModelFile& model, const HfScheme& scheme,
                                 const Recipe& recipe, ThreadPool& pool, TensorStore& store);

  const HfScheme& scheme() const { return scheme_; }
  const std::vector<std::string>& kept() const { return kept_; }  // modules, sorted
  const std::vector<std::string>& notes() const { return notes_; }
  // Whether a stored tensor is a linear that is quantised.
  bool Quantises(const SourceTensor& tensor) const { return modules_.contains(&tensor); }
  // "model.layers.0.mlp.up_proj"
  static std::string_view ModuleOf(const SourceTensor& tensor);
  // The tensors of a quantised linear, from the store.
  Result<std::vector<std::vector<std::byte>>> Encoded(const SourceTensor& tensor) const;

  bool Keeps(const StoredLinear& linear) const override;
  GridSpec GridFor(const StoredLinear& /*linear*/) const override { return GridOf(scheme_); }
  bool Done(const StoredLinear& linear) const override;
  Status Restore(const StoredLinear& linear, MatrixView<float> values) override;
  Status Quantize(const StoredLinear& linear, MatrixView<const float> w, const LinearInput& input,
                  MatrixView<float> values) override;
  Status PutVector(const SourceTensor& tensor, std::span<const float> values, bool norm) override;

 private:
  HfTarget(const HfScheme& scheme, const Recipe& recipe, ThreadPool& pool, TensorStore& store)
      : scheme_(scheme), recipe_(recipe), pool_(&pool), store_(&store) {}

  Result<GroupedMatrix> Codes(MatrixView<const float> w, const LinearInput& input,
                              std::string& note);
  Result<std::vector<std::byte>> ReadRecord(const SourceTensor& tensor) const;

  HfScheme scheme_;
  Recipe recipe_;
  ThreadPool* pool_;
  TensorStore* store_;
  bool plus_one_ = false;
  std::map<const SourceTensor*, bool> modules_;
  std::vector<std::string> kept_;
  std::vector<std::string> notes_;
};

}  // namespace nibble
