#include "quantize/layer_scaling.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "model/config/model_file.h"
#include "platform/thread_pool.h"
#include "quantize/awq.h"
#include "quantize/fold.h"
#include "quantize/smoothquant.h"

namespace nibble {
namespace {

constexpr int kSampleRows = 512;

HeadGroups GroupsOf(const ModelConfig& config) {
  return {.heads = config.heads, .kv_heads = config.kv_heads, .head_dim = config.head_dim};
}

bool Scaled(const LayerScaling& how, LayerStage stage) {
  const bool behind_norm = stage == LayerStage::kQkv || stage == LayerStage::kGateUp;
  if (how.recipe.scaling == Scaling::kSmoothQuant) return behind_norm;
  return stage != LayerStage::kDown || how.model.config().ffn == FfnKind::kGated;
}

// The inputs of all four stages with the weights as they are. hidden is left as it was.
Result<std::vector<InputStats>> LayerInputs(const LayerScaling& how, LayerRunner& runner,
                                            ActivationStore& activations) {
  for (const LayerStage stage : kLayerStages) NIBBLE_RETURN_IF_ERROR(runner.Load(stage));
  std::vector<InputStats> inputs;
  std::vector<float> copy;
  for (int i = 0; i < activations.sequences(); ++i) {
    LayerSequence sequence = activations.Sequence(i);
    const int rows = sequence.hidden.rows;
    copy.resize(static_cast<size_t>(rows) * static_cast<size_t>(sequence.hidden.cols));
    std::copy_n(sequence.hidden.data, copy.size(), copy.data());
    sequence.hidden = DenseView(copy.data(), rows, sequence.hidden.cols);
    for (const LayerStage stage : kLayerStages) {
      const MatrixView<const float> x = runner.Input(stage, sequence);
      const auto at = static_cast<size_t>(stage);
      if (inputs.size() <= at) {
        inputs.emplace_back(x.cols, StatsNeeds{.sizes = true, .sample_rows = kSampleRows},
                            int64_t{rows} * activations.sequences());
      }
      inputs[at].Add(x, how.pool);
    }
    activations.Release(i);
  }
  for (const LayerStage stage : kLayerStages) runner.Drop(stage);
  return inputs;
}

Result<std::vector<float>> StageScales(const LayerScaling& how, int layer, LayerStage stage,
                                       const InputStats& input) {
  std::vector<std::vector<float>> weights;
  std::vector<MatrixView<const float>> views;
  for (const StoredLinear& linear : StoredLinears(how.model, layer, stage)) {
    NIBBLE_TRY(std::vector<float> values, how.read(linear));
    weights.push_back(std::move(values));
    views.push_back(DenseView<const float>(weights.back().data(), linear.rows, linear.cols));
  }
  if (how.recipe.scaling == Scaling::kSmoothQuant) {
    ChannelRange range;
    range.max = input.largest();
    for (const float size : range.max) range.min.push_back(-size);
    return SmoothScales(range, views, {.alpha = how.recipe.alpha}, how.pool);
  }
  std::vector<float> magnitude = input.MeanSizes();
  AwqOptions options = {.grid = how.grid(stage)};
  if (stage == LayerStage::kOutput) {
    // One value head stands before several of these channels: what the scales follow from must
    // agree among them, and the weights' part of it does not.
    const HeadGroups groups = GroupsOf(how.model.config());
    options.duo_scaling = groups.heads == groups.kv_heads;
    TieHeads(magnitude, groups);
  }
  NIBBLE_TRY(
      AwqScales found,
      SearchAwqScales({.consumers = views, .mean_magnitude = magnitude, .inputs = input.sample()},
                      options, how.pool));
  return std::move(found.scales);
}

// The scales of what a linear's rows become the input of; empty: none.
Result<std::vector<float>> RowScales(const ModelConfig& config, const LayerScales& scales,
                                     Linear linear) {
  if (linear == Linear::kUp) return scales.Of(LayerStage::kDown);
  if (linear != Linear::kValue || scales.Of(LayerStage::kOutput).empty()) {
    return std::vector<float>{};
  }
  return ScalesOfValues(scales.Of(LayerStage::kOutput), GroupsOf(config));
}

}  // namespace

MatrixView<const float> LayerScales::Sample(LayerStage stage, int cols) const {
  const std::vector<float>& rows = samples[static_cast<size_t>(stage)];
  return DenseView(rows.data(), static_cast<int>(rows.size()) / cols, cols);
}

std::vector<StoredLinear> StoredLinears(const ModelFile& model, int layer, LayerStage stage) {
  const LayerTensors& tensors = model.tensors().layers[static_cast<size_t>(layer)];
  std::vector<StoredLinear> found;
  for (const Linear linear : LinearsOf(stage)) {
    const MatrixRef& ref = tensors[linear].weight;
    if (!ref) continue;
    auto at = std::ranges::find(found, ref.tensor, &StoredLinear::tensor);
    if (at == found.end()) {
      found.push_back({.layer = layer,
                       .stage = stage,
                       .tensor = ref.tensor,
                       .transposed = ref.transposed,
                       .rows = 0,
                       .cols = ref.cols,
                       .parts = {}});
      at = found.end() - 1;
    }
    at->rows = std::max(at->rows, ref.first_row + ref.rows);
    at->parts.push_back({.linear = linear, .first_row = ref.first_row, .rows = ref.rows});
  }
  return found;
}

Result<LayerScales> FindLayerScales(const LayerScaling& how, int layer, LayerRunner& runner,
                                    ActivationStore& activations) {
  NIBBLE_TRY(const std::vector<InputStats> inputs, LayerInputs(how, runner, activations));
  LayerScales scales;
  for (const LayerStage stage : kLayerStages) {
    const auto at = static_cast<size_t>(stage);
    if (Scaled(how, stage)) {
      NIBBLE_TRY(scales.of_stage[at], StageScales(how, layer, stage, inputs[at]));
    }
    if (!how.recipe.clip) continue;
    const MatrixView<const float> sample = inputs[at].sample();
    for (int r = 0; r < sample.rows; ++r) {
      for (int c = 0; c < sample.cols; ++c) {
        const float divisor =
            scales.of_stage[at].empty() ? 1 : scales.of_stage[at][static_cast<size_t>(c)];
        scales.samples[at].push_back(sample.row(r)[c] / divisor);
      }
    }
  }
  return scales;
}

void ScaleWeights(const ModelConfig& config, const LayerScales& scales, const StoredLinear& linear,
                  MatrixView<float> w) {
  const std::vector<float>& columns = scales.Of(linear.stage);
  if (!columns.empty()) ScaleColumns(w, columns);
  for (const StoredLinear::Part& part : linear.parts) {
    const auto rows = RowScales(config, scales, part.linear);
    if (!rows || rows->empty()) continue;
    DivideRows({w.row(part.first_row), part.rows, w.cols, w.stride}, {}, *rows);
  }
}

bool ScaleBias(const ModelConfig& config, const LayerScales& scales, Linear linear,
               std::span<float> bias) {
  const auto rows = RowScales(config, scales, linear);
  if (!rows || rows->empty() || bias.empty()) return false;
  for (size_t i = 0; i < bias.size(); ++i) bias[i] /= (*rows)[i];
  return true;
}

bool ScaleNorm(const LayerScales& scales, Norm norm, std::span<float> gain, std::span<float> bias) {
  if (norm != Norm::kAttention && norm != Norm::kFfn) return false;
  const std::vector<float>& s =
      scales.Of(norm == Norm::kAttention ? LayerStage::kQkv : LayerStage::kGateUp);
  if (s.empty()) return false;
  DivideNorm(gain, bias, s, false);
  return true;
}

}  // namespace nibble
