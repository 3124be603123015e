#include "quantize/layer_inputs.h"

#include <fmt/format.h>

#include <memory>

#include "base/check.h"
#include "model/config/model_file.h"
#include "model/decoder.h"
#include "model/layer_runner.h"
#include "quantize/activation_store.h"

namespace nibble {

Status ReadLayerInputs(const ModelFile& model, const LayerInputsOptions& options,
                       const KernelTable& kernels, ThreadPool& pool, LinearTap& tap) {
  NIBBLE_CHECK(!options.sequences.empty());
  const auto tokens = static_cast<int>(options.sequences.front().size());
  const auto count = static_cast<int>(options.sequences.size());
  NIBBLE_TRY(const std::unique_ptr<LayerRunner> runner,
             LayerRunner::Create(model, tokens, kernels, pool));
  NIBBLE_TRY(ActivationStore activations, ActivationStore::Create(model.config(), count, tokens,
                                                                  options.memory, options.folder));
  const auto for_sequences = [&](const auto& visit) {
    for (int i = 0; i < count; ++i) {
      visit(i, activations.Sequence(i));
      activations.Release(i);
    }
  };
  for_sequences([&](int i, const LayerSequence& sequence) {
    runner->Embed(options.sequences[static_cast<size_t>(i)], sequence.hidden);
  });
  const auto layers = static_cast<int>(model.config().layers.size());
  for (int layer = 0; layer < layers; ++layer) {
    NIBBLE_RETURN_IF_ERROR(runner->BeginLayer(layer));
    for (const LayerStage stage : kLayerStages) {
      const std::string_view name = StageName(stage);
      for_sequences([&](int i, const LayerSequence& sequence) {
        tap.Input(layer, name, runner->Input(stage, sequence));
        if (!options.progress) return;
        const double part = (static_cast<double>(stage) + static_cast<double>(i) / count) / 4;
        options.progress((layer + part) / layers,
                         fmt::format("layer {} of {}, {}", layer + 1, layers, name));
      });
      NIBBLE_RETURN_IF_ERROR(runner->Load(stage));
      if (stage == LayerStage::kOutput) runner->Drop(LayerStage::kQkv);
      if (stage == LayerStage::kGateUp) runner->Drop(LayerStage::kOutput);
    }
    for_sequences([&](int, const LayerSequence& sequence) { runner->Finish(sequence); });
  }
  return {};
}

}  // namespace nibble
