#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "container/tensor_source.h"
#include "model/config/architecture.h"
#include "model/layer_runner.h"
#include "quantize/grid.h"
#include "quantize/hessian_factor.h"
#include "quantize/input_stats.h"
#include "quantize/recipe.h"
#include "tensor/matrix.h"

namespace nibble {

// A stored tensor of one or several linears of a layer (q, k and v may be one).
struct StoredLinear {
  int layer = 0;
  LayerStage stage = LayerStage::kQkv;
  const SourceTensor* tensor = nullptr;
  bool transposed = false;
  int rows = 0;  // outputs of all its linears
  int cols = 0;
  struct Part {
    Linear linear;
    int first_row;
    int rows;
  };
  std::vector<Part> parts;
};

// What is known about a linear's input.
struct LinearInput {
  const InputStats* stats = nullptr;      // null: no calibration
  const HessianFactor* factor = nullptr;  // where the recipe needs it
};

// Where quantised linears go: a kind of output with its formats.
class LinearTarget {
 public:
  virtual ~LinearTarget() = default;

  // Whether the linear stays as it is (its weights are what the source holds).
  virtual bool Keeps(const StoredLinear& linear) const = 0;
  // The grid that a linear's weights will be rounded to, as far as a search for scales cares.
  virtual GridSpec GridFor(const StoredLinear& linear) const = 0;
  // Whether an earlier run has quantised it; Restore gives its weights [rows][cols].
  virtual bool Done(const StoredLinear& linear) const = 0;
  virtual Status Restore(const StoredLinear& linear, MatrixView<float> values) = 0;
  // Quantises w [rows][cols], keeps the result and gives what it stands for.
  virtual Status Quantize(const StoredLinear& linear, MatrixView<const float> w,
                          const LinearInput& input, MatrixView<float> values) = 0;
  // Other values of a norm or bias. norm: gains, with the 1 of Gemma's counted in.
  virtual Status PutVector(const SourceTensor& tensor, std::span<const float> values,
                           bool norm) = 0;
};

}  // namespace nibble
