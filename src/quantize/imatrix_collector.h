#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/decoder.h"
#include "quantize/imatrix.h"

namespace nibble {

struct ModelTensors;

// Collects an importance matrix while a decoder computes a text: the sums of the squares of every
// linear layer's inputs, in double precision and in the order of the rows. The output matrix is
// left out, as llama.cpp does it: where it is the embedding too, rows are read without being
// multiplied.
class ImatrixCollector : public LinearTap {
 public:
  void Input(int layer, std::string_view linear, MatrixView<const float> x) override;

  // By the names of the matrices that took those inputs; several have one input. Error: inputs that
  // no finite sum comes from, named by the first matrix.
  Result<Imatrix> Finish(const ModelTensors& tensors) const;

 private:
  struct Sums {
    std::vector<double> squares;  // [columns]
    int64_t rows = 0;
  };
  struct Key {
    int layer;
    std::string linear;
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, Sums> sums_;
};

}  // namespace nibble
