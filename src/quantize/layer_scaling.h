#pragma once

#include <array>
#include <functional>
#include <vector>

#include "base/result.h"
#include "model/layer_runner.h"
#include "quantize/activation_store.h"
#include "quantize/grid.h"
#include "quantize/input_stats.h"
#include "quantize/linear_target.h"
#include "quantize/recipe.h"

namespace nibble {

class ModelFile;
class ThreadPool;

// The scales that AWQ or SmoothQuant gives the inputs of a layer's linears: columns are multiplied
// by them, and what comes before is divided.
struct LayerScales {
  // [cols] per LayerStage; empty: that input stays as it is.
  std::array<std::vector<float>, 4> of_stage;
  // AWQ with --clip: the inputs that ranges are searched on, already divided.
  std::array<std::vector<float>, 4> samples;

  const std::vector<float>& Of(LayerStage stage) const {
    return of_stage[static_cast<size_t>(stage)];
  }
  MatrixView<const float> Sample(LayerStage stage, int cols) const;
};

struct LayerScaling {
  const ModelFile& model;
  const Recipe& recipe;
  ThreadPool& pool;
  // The grid that a stage's weights will be rounded to, as far as AWQ's search cares.
  std::function<GridSpec(LayerStage stage)> grid;
  // A stored linear in f32.
  std::function<Result<std::vector<float>>(const StoredLinear& linear)> read;
};

// Computes the layer with its weights as they are over all sequences, whose activations stay, and
// finds the scales: SmoothQuant for what follows a norm; AWQ for all four inputs, less those whose
// divisor would have to pass an activation function (down of an FFN without a gate).
Result<LayerScales> FindLayerScales(const LayerScaling& how, int layer, LayerRunner& runner,
                                    ActivationStore& activations);

// The stored tensors of a stage's linears.
std::vector<StoredLinear> StoredLinears(const ModelFile& model, int layer, LayerStage stage);

// Multiplies columns and divides rows of a stored linear's weights.
void ScaleWeights(const ModelConfig& config, const LayerScales& scales, const StoredLinear& linear,
                  MatrixView<float> w);
// The same for a linear's bias, in place; false: nothing changes.
bool ScaleBias(const ModelConfig& config, const LayerScales& scales, Linear linear,
               std::span<float> bias);
// The norm in front of a stage: gains and bias, in place; false: nothing changes.
bool ScaleNorm(const LayerScales& scales, Norm norm, std::span<float> gain, std::span<float> bias);

}  // namespace nibble
