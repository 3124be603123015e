#pragma once

#include <map>
#include <vector>

#include "quantize/linear_target.h"
#include "quantize/tensor_choice.h"
#include "quantize/tensor_store.h"

namespace nibble {

class ThreadPool;

// Linears of a GGUF file: each in the type that was chosen for it, into the store.
class GgufTarget : public LinearTarget {
 public:
  // Errors: a type that the recipe's rounding cannot make (hqq makes types with a scale and a
  // minimum); checked for all linears before any work.
  static Status Check(const std::vector<TensorChoice>& choices, const Recipe& recipe);

  GgufTarget(const std::vector<TensorChoice>& choices, const Recipe& recipe, ThreadPool& pool,
             TensorStore& store);

  bool Keeps(const StoredLinear& linear) const override;
  GridSpec GridFor(const StoredLinear& linear) const override;
  bool Done(const StoredLinear& linear) const override;
  Status Restore(const StoredLinear& linear, MatrixView<float> values) override;
  Status Quantize(const StoredLinear& linear, MatrixView<const float> w, const LinearInput& input,
                  MatrixView<float> values) override;
  Status PutVector(const SourceTensor& tensor, std::span<const float> values, bool norm) override;

 private:
  const TensorChoice& ChoiceOf(const SourceTensor* tensor) const { return *choices_.at(tensor); }
  Status Put(const TensorChoice& choice, std::span<const std::byte> rows, std::string_view note);

  std::map<const SourceTensor*, const TensorChoice*> choices_;
  const Recipe& recipe_;
  ThreadPool& pool_;
  TensorStore& store_;
};

}  // namespace nibble
