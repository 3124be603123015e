#include "quantize/calibrated.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "model/config/model_file.h"
#include "model/weights.h"
#include "platform/thread_pool.h"
#include "quantize/activation_store.h"
#include "quantize/awq.h"
#include "quantize/layer_scaling.h"
#include "quantize/rtn.h"
#include "quantize/tensor_view.h"

namespace nibble {
namespace {

// The matrix in f32, its source's pages given back.
Result<std::vector<float>> ReadWeights(const ModelFile& model, const StoredLinear& linear,
                                       ThreadPool& pool) {
  const TensorView view = {.name = std::string(linear.tensor->name),
                           .tensor = linear.tensor,
                           .transposed = linear.transposed};
  const auto cols = static_cast<size_t>(linear.cols);
  std::vector<float> values(static_cast<size_t>(linear.rows) * cols);
  pool.ParallelFor(linear.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      view.ReadRow(static_cast<uint64_t>(r), values.data() + static_cast<size_t>(r) * cols);
    }
  });
  if (!model.files().empty()) {
    const MappedFile& file = model.files()[static_cast<size_t>(linear.tensor->file)];
    const std::span<const std::byte> bytes = linear.tensor->bytes;
    file.Drop(static_cast<size_t>(bytes.data() - file.bytes().data()), bytes.size());
  }
  const Status finite = CheckFinite(DenseView(values.data(), linear.rows, linear.cols), pool);
  if (!finite) return Within(view.name, finite.error());
  return values;
}

class CalibratedRun {
 public:
  CalibratedRun(const ModelFile& model, const CalibratedOptions& options, ThreadPool& pool,
                LinearTarget& target)
      : model_(model), options_(options), pool_(pool), target_(target) {}

  Status Start(const KernelTable& kernels);
  Status Layer(int layer);
  CalibratedResult Finish() { return std::move(result_); }

 private:
  bool computes() const { return runner_ != nullptr; }
  StatsNeeds Needs() const;
  // Finds the layer's scales and puts them into its norms and biases.
  Status Scale(int layer);
  Status ScaleVectors(int layer);
  // The input of the stage over all sequences; null stats where they are not needed.
  Result<std::optional<InputStats>> Inputs(int layer, LayerStage stage, bool needed);
  Status Stage(int layer, LayerStage stage);
  Status OneLinear(const StoredLinear& linear, const LinearInput& input);
  Status Clip(const StoredLinear& linear, MatrixView<float> weights);
  Status Replace(const StoredLinear& linear, MatrixView<const float> values);
  void Tell(int layer, std::string_view what, double part);

  const ModelFile& model_;
  const CalibratedOptions& options_;
  ThreadPool& pool_;
  LinearTarget& target_;
  std::unique_ptr<LayerRunner> runner_;
  std::optional<ActivationStore> activations_;
  LayerScales scales_;  // of the layer at hand
  CalibratedResult result_;
};

void CalibratedRun::Tell(int layer, std::string_view what, double part) {
  if (!options_.progress) return;
  const auto layers = static_cast<double>(model_.config().layers.size());
  options_.progress((layer + part) / layers,
                    fmt::format("layer {} of {}, {}", layer + 1, layers, what));
}

Status CalibratedRun::Start(const KernelTable& kernels) {
  if (options_.sequences.empty()) return {};
  const auto tokens = static_cast<int>(options_.sequences.front().size());
  NIBBLE_TRY(runner_, LayerRunner::Create(model_, tokens, kernels, pool_));
  const auto count = static_cast<int>(options_.sequences.size());
  NIBBLE_TRY(ActivationStore store, ActivationStore::Create(model_.config(), count, tokens,
                                                            options_.memory, options_.folder));
  activations_.emplace(std::move(store));
  result_.activation_bytes = activations_->bytes();
  result_.spilled = activations_->spilled();
  for (int i = 0; i < count; ++i) {
    runner_->Embed(options_.sequences[static_cast<size_t>(i)], activations_->Sequence(i).hidden);
    activations_->Release(i);
  }
  return {};
}

StatsNeeds CalibratedRun::Needs() const {
  const Recipe& recipe = options_.recipe;
  return {.hessian = recipe.rounding == Rounding::kGptq,
          .squares = recipe.rounding == Rounding::kKquant || options_.importance};
}

Result<std::optional<InputStats>> CalibratedRun::Inputs(int layer, LayerStage stage, bool needed) {
  std::optional<InputStats> stats;
  if (!computes()) return stats;
  // The first and the last stage move nothing on.
  const bool moves = stage == LayerStage::kOutput || stage == LayerStage::kGateUp;
  if (!needed && !moves) return stats;
  const int count = activations_->sequences();
  for (int i = 0; i < count; ++i) {
    const MatrixView<const float> x = runner_->Input(stage, activations_->Sequence(i));
    if (needed && !stats) stats.emplace(x.cols, Needs(), int64_t{count} * x.rows);
    if (needed) stats->Add(x, pool_);
    activations_->Release(i);
    Tell(layer, StageName(stage), (static_cast<double>(stage) + 0.9 * i / count) / 5);
  }
  return stats;
}

Status CalibratedRun::Replace(const StoredLinear& linear, MatrixView<const float> values) {
  for (const StoredLinear::Part& part : linear.parts) {
    NIBBLE_RETURN_IF_ERROR(runner_->Replace(
        part.linear, DenseView(values.row(part.first_row), part.rows, linear.cols)));
  }
  return {};
}

// AWQ's smaller ranges; of queries and keys it leaves them as they are.
Status CalibratedRun::Clip(const StoredLinear& linear, MatrixView<float> weights) {
  if (!options_.recipe.clip || !computes()) return {};
  const GridSpec grid = target_.GridFor(linear);
  const MatrixView<const float> inputs = scales_.Sample(linear.stage, linear.cols);
  for (const StoredLinear::Part& part : linear.parts) {
    if (part.linear == Linear::kQuery || part.linear == Linear::kKey) continue;
    const MatrixView<float> rows = {weights.row(part.first_row), part.rows, weights.cols,
                                    weights.stride};
    NIBBLE_TRY(const std::vector<float> clip, SearchAwqClip(rows, inputs, grid, pool_));
    ApplyClip(rows, grid.GroupOf(linear.cols), clip);
  }
  return {};
}

Status CalibratedRun::Scale(int layer) {
  scales_ = {};
  if (!computes() || options_.recipe.scaling == Scaling::kNone) return {};
  const LayerScaling how = {
      .model = model_,
      .recipe = options_.recipe,
      .pool = pool_,
      .grid =
          [&](LayerStage stage) {
            return target_.GridFor(StoredLinears(model_, layer, stage).front());
          },
      .read = [&](const StoredLinear& linear) { return ReadWeights(model_, linear, pool_); }};
  NIBBLE_TRY(scales_, FindLayerScales(how, layer, *runner_, *activations_));
  return ScaleVectors(layer);
}

Status CalibratedRun::ScaleVectors(int layer) {
  const LayerTensors& tensors = model_.tensors().layers[static_cast<size_t>(layer)];
  for (const Norm norm : {Norm::kAttention, Norm::kFfn}) {
    const NormRef& ref = tensors[norm];
    std::vector<float> gain = ReadVector(ref.weight, model_.config().norm_plus_one ? 1.0F : 0.0F);
    std::vector<float> bias = ReadVector(ref.bias);
    if (!ScaleNorm(scales_, norm, gain, bias)) continue;
    NIBBLE_RETURN_IF_ERROR(target_.PutVector(*ref.weight.tensor, gain, true));
    if (ref.bias) NIBBLE_RETURN_IF_ERROR(target_.PutVector(*ref.bias.tensor, bias, false));
    runner_->ReplaceNorm(norm, gain, bias);
  }
  for (const Linear linear : {Linear::kValue, Linear::kUp}) {
    const VectorRef& ref = tensors[linear].bias;
    if (!ref) continue;
    // One stored bias may be that of several linears.
    std::vector<float> whole = ReadVector(
        {.tensor = ref.tensor, .first = 0, .size = static_cast<int>(ref.tensor->elements())});
    const auto bias =
        std::span(whole).subspan(static_cast<size_t>(ref.first), static_cast<size_t>(ref.size));
    if (!ScaleBias(model_.config(), scales_, linear, bias)) continue;
    NIBBLE_RETURN_IF_ERROR(target_.PutVector(*ref.tensor, whole, false));
    runner_->ReplaceBias(linear, bias);
  }
  return {};
}

Status CalibratedRun::OneLinear(const StoredLinear& linear, const LinearInput& input) {
  const auto size = static_cast<size_t>(linear.rows) * static_cast<size_t>(linear.cols);
  std::vector<float> values;
  const auto view = [&](std::vector<float>& of) {
    return DenseView(of.data(), linear.rows, linear.cols);
  };
  if (target_.Done(linear)) {
    if (!computes()) return {};
    values.resize(size);
    NIBBLE_RETURN_IF_ERROR(target_.Restore(linear, view(values)));
    return Replace(linear, view(values));
  }
  NIBBLE_TRY(std::vector<float> weights, ReadWeights(model_, linear, pool_));
  values.resize(size);
  ScaleWeights(model_.config(), scales_, linear, view(weights));
  NIBBLE_RETURN_IF_ERROR(Clip(linear, view(weights)));
  const Status done = target_.Quantize(linear, view(weights), input, view(values));
  if (!done) return Within(std::string(linear.tensor->name), done.error());
  weights = {};
  return computes() ? Replace(linear, view(values)) : Status{};
}

Status CalibratedRun::Stage(int layer, LayerStage stage) {
  const std::vector<StoredLinear> linears = StoredLinears(model_, layer, stage);
  const bool needed = std::ranges::any_of(linears, [&](const StoredLinear& linear) {
    return !target_.Keeps(linear) && !target_.Done(linear);
  });
  NIBBLE_TRY(const std::optional<InputStats> stats, Inputs(layer, stage, needed));
  LinearInput input = {.stats = stats ? &*stats : nullptr};
  std::optional<HessianFactor> factor;
  if (stats && stats->hessian()) {
    const FactorOptions how = {.damping = options_.recipe.damping,
                               .act_order = options_.recipe.act_order};
    auto made = FactorHessian(*stats->hessian(), how, pool_);
    const std::string where = fmt::format("layer {}, input of {}", layer, StageName(stage));
    if (!made) return Within(where, made.error());
    factor = *std::move(made);
    input.factor = &*factor;
    if (factor->raised > 0) {
      result_.notes.push_back(fmt::format("{}: damping raised to {:.4g}", where, factor->damping));
    }
    if (factor->dead_count > 0) {
      result_.notes.push_back(fmt::format("{}: {} of {} columns are dead; their weights become 0",
                                          where, factor->dead_count, factor->cols));
    }
  }
  for (const StoredLinear& linear : linears) {
    Tell(layer, linear.tensor->name, (static_cast<double>(stage) + 0.9) / 5);
    if (!target_.Keeps(linear)) {
      NIBBLE_RETURN_IF_ERROR(OneLinear(linear, input));
      continue;
    }
    for (const StoredLinear::Part& part : linear.parts) {
      if (computes()) NIBBLE_RETURN_IF_ERROR(runner_->Load(part.linear));
    }
  }
  return {};
}

Status CalibratedRun::Layer(int layer) {
  if (computes()) NIBBLE_RETURN_IF_ERROR(runner_->BeginLayer(layer));
  NIBBLE_RETURN_IF_ERROR(Scale(layer));
  for (const LayerStage stage : kLayerStages) {
    NIBBLE_RETURN_IF_ERROR(Stage(layer, stage));
    if (computes() && stage == LayerStage::kOutput) runner_->Drop(LayerStage::kQkv);
    if (computes() && stage == LayerStage::kGateUp) runner_->Drop(LayerStage::kOutput);
  }
  if (!computes()) return {};
  for (int i = 0; i < activations_->sequences(); ++i) {
    runner_->Finish(activations_->Sequence(i));
    activations_->Release(i);
    Tell(layer, "outputs", (4 + 0.9 * i / activations_->sequences()) / 5);
  }
  return {};
}

}  // namespace

Result<CalibratedResult> QuantizeLinears(const ModelFile& model, const CalibratedOptions& options,
                                         const KernelTable& kernels, ThreadPool& pool,
                                         LinearTarget& target) {
  CalibratedRun run(model, options, pool, target);
  NIBBLE_RETURN_IF_ERROR(run.Start(kernels));
  for (int layer = 0; layer < static_cast<int>(model.config().layers.size()); ++layer) {
    NIBBLE_RETURN_IF_ERROR(run.Layer(layer));
  }
  return run.Finish();
}

}  // namespace nibble
