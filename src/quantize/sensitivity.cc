#include "quantize/sensitivity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/text.h"
#include "kernels/elementwise.h"
#include "model/config/model_file.h"
#include "model/layer_runner.h"
#include "platform/thread_pool.h"
#include "quantize/activation_store.h"
#include "quantize/encode_tensor.h"
#include "quantize/layer_scaling.h"

namespace nibble {
namespace {

// ln Σ exp over blocks, added one after the other.
class RunningSum {
 public:
  void Add(double log_sum) {
    const double top = std::max(sum_, log_sum);
    sum_ = top + std::log(std::exp(sum_ - top) + std::exp(log_sum - top));
  }
  double value() const { return sum_; }

 private:
  double sum_ = -1e300;
};

class SensitivityPass {
 public:
  SensitivityPass(const ModelFile& model, const std::vector<SensitivityProbe>& probes,
                  const SensitivityOptions& options, const KernelTable& kernels, ThreadPool& pool)
      : model_(model), probes_(probes), options_(options), kernels_(kernels), pool_(pool) {}

  Status Start();
  Status Layer(int layer);
  Result<SensitivityResult> Finish();

 private:
  int sequences() const { return static_cast<int>(options_.sequences.size()); }
  int tokens() const { return static_cast<int>(options_.sequences.front().size()); }
  // The predictions of a window that `nibble eval` scores.
  int scored() const { return tokens() - tokens() / 2 - 1; }
  // Probe -1 is the model as it is.
  LayerSequence At(int probe, int sequence) {
    return activations_->Sequence((probe + 1) * sequences() + sequence);
  }
  void Release(int probe, int sequence) {
    activations_->Release((probe + 1) * sequences() + sequence);
  }
  void Branch(int probe);   // a copy of the model's own stream
  void Advance(int probe);  // through the layer at hand
  // The matrix in the probe's type, rows of the stored order.
  Result<std::vector<std::byte>> Encode(const SourceTensor& tensor, bool transposed, Format format);
  Status ProbeEmbedding(int probe);
  Status ProbeLinear(const StoredLinear& linear, int probe);
  // The last rows' logits of a probe, in blocks: visit(row, first, logits).
  using VisitRow = std::function<void(size_t row, int first, std::span<const float> logits)>;
  Status Logits(int probe, const VisitRow& visit);
  Status BaseLogits();
  Result<double> Divergence(int probe);
  void Tell(const std::string& what);

  const ModelFile& model_;
  const std::vector<SensitivityProbe>& probes_;
  const SensitivityOptions& options_;
  const KernelTable& kernels_;
  ThreadPool& pool_;
  std::unique_ptr<LayerRunner> runner_;
  std::optional<ActivationStore> activations_;
  std::map<const SourceTensor*, int> by_tensor_;
  std::vector<int> live_;  // probes that go along
  std::optional<int> output_probe_;
  std::vector<std::byte> output_codes_;  // the output matrix in its probe's type
  // Of the model as it is, by scored row.
  std::vector<float> probability_;  // [rows][vocabulary]
  std::vector<double> mean_logit_;  // Σ p · logit
  std::vector<double> log_sum_;
  double done_ = 0;
  double total_ = 1;
};

void SensitivityPass::Tell(const std::string& what) {
  done_ += 1;
  if (options_.progress) options_.progress(std::min(1.0, done_ / total_), what);
}

Status SensitivityPass::Start() {
  const ModelConfig& config = model_.config();
  const double logits =
      sizeof(float) * static_cast<double>(config.vocabulary) * scored() * sequences();
  if (logits > static_cast<double>(options_.memory)) {
    return BadInput("sensitivity: the predictions of {} sequences take {}; expected at most {}",
                    sequences(), FormatBytes(logits),
                    FormatBytes(static_cast<double>(options_.memory)));
  }
  const auto layers = static_cast<double>(config.layers.size());
  const auto count = static_cast<double>(probes_.size());
  // Each probe through half of the layers in the mean; the output weighs as a layer or so.
  total_ = sequences() * (layers + count * (layers / 2 + 2));
  for (size_t i = 0; i < probes_.size(); ++i) by_tensor_[probes_[i].tensor] = static_cast<int>(i);
  NIBBLE_TRY(runner_, LayerRunner::Create(model_, tokens(), kernels_, pool_));
  NIBBLE_TRY(ActivationStore store,
             ActivationStore::Create(config, (static_cast<int>(probes_.size()) + 1) * sequences(),
                                     tokens(), options_.memory, options_.folder));
  activations_.emplace(std::move(store));
  for (int i = 0; i < sequences(); ++i) {
    runner_->Embed(options_.sequences[static_cast<size_t>(i)], At(-1, i).hidden);
  }
  const ModelTensors& tensors = model_.tensors();
  if (tensors.output.weight) {
    const auto found = by_tensor_.find(tensors.output.weight.tensor);
    if (found != by_tensor_.end()) output_probe_ = found->second;
  }
  const auto embedding = by_tensor_.find(tensors.embedding.tensor);
  if (embedding == by_tensor_.end()) return {};
  if (!tensors.output.weight) output_probe_ = embedding->second;
  return ProbeEmbedding(embedding->second);
}

Result<std::vector<std::byte>> SensitivityPass::Encode(const SourceTensor& tensor, bool transposed,
                                                       Format format) {
  const TensorView view = {
      .name = std::string(tensor.name), .tensor = &tensor, .transposed = transposed};
  std::vector<std::byte> codes;
  codes.reserve(view.rows() * TraitsOf(format).RowBytes(view.cols()));
  const auto append = [&](std::span<const std::byte> bytes) {
    codes.insert(codes.end(), bytes.begin(), bytes.end());
    return Status{};
  };
  const auto loss = EncodeTensor(view, {.format = format}, pool_, append, [](uint64_t) {});
  if (!loss) return std::unexpected(loss.error());
  return codes;
}

void SensitivityPass::Branch(int probe) {
  for (int i = 0; i < sequences(); ++i) {
    const MatrixView<float> from = At(-1, i).hidden;
    const MatrixView<float> to = At(probe, i).hidden;
    for (int r = 0; r < from.rows; ++r) std::copy_n(from.row(r), from.cols, to.row(r));
  }
}

void SensitivityPass::Advance(int probe) {
  for (int i = 0; i < sequences(); ++i) {
    const LayerSequence sequence = At(probe, i);
    runner_->Input(LayerStage::kOutput, sequence);
    runner_->Input(LayerStage::kGateUp, sequence);
    runner_->Finish(sequence);
    Release(probe, i);
  }
}

Status SensitivityPass::ProbeEmbedding(int probe) {
  const SourceTensor& tensor = *model_.tensors().embedding.tensor;
  const Format format = probes_[static_cast<size_t>(probe)].format;
  NIBBLE_TRY(std::vector<std::byte> codes, Encode(tensor, false, format));
  Branch(probe);
  live_.push_back(probe);
  const auto width = static_cast<size_t>(model_.config().width);
  const FormatTraits& traits = TraitsOf(format);
  const FormatTraits& stored = TraitsOf(*tensor.format);
  std::vector<float> before(width);
  std::vector<float> after(width);
  for (int i = 0; i < sequences(); ++i) {
    const auto& ids = options_.sequences[static_cast<size_t>(i)];
    const MatrixView<float> hidden = At(probe, i).hidden;
    for (int r = 0; r < hidden.rows; ++r) {
      const auto id = static_cast<size_t>(ids[static_cast<size_t>(r)].value());
      stored.decode(tensor.bytes.data() + id * stored.RowBytes(width), before.data(), width);
      traits.decode(codes.data() + id * traits.RowBytes(width), after.data(), width);
      for (size_t c = 0; c < width; ++c) {
        hidden.row(r)[c] += (after[c] - before[c]) * model_.config().embedding_scale;
      }
    }
  }
  if (output_probe_ == probe) output_codes_ = std::move(codes);
  return {};
}

Status SensitivityPass::ProbeLinear(const StoredLinear& linear, int probe) {
  const FormatTraits& traits = TraitsOf(probes_[static_cast<size_t>(probe)].format);
  NIBBLE_TRY(const std::vector<std::byte> codes,
             Encode(*linear.tensor, linear.transposed, traits.format));
  const auto cols = static_cast<size_t>(linear.cols);
  std::vector<float> values(static_cast<size_t>(linear.rows) * cols);
  pool_.ParallelFor(linear.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (auto r = static_cast<size_t>(begin); r < static_cast<size_t>(end); ++r) {
      traits.decode(codes.data() + r * traits.RowBytes(cols), values.data() + r * cols, cols);
    }
  });
  const auto view = DenseView(values.data(), linear.rows, linear.cols);
  for (const StoredLinear::Part& part : linear.parts) {
    NIBBLE_RETURN_IF_ERROR(runner_->Replace(
        part.linear, DenseView<const float>(view.row(part.first_row), part.rows, linear.cols)));
  }
  Branch(probe);
  Advance(probe);
  for (const StoredLinear::Part& part : linear.parts) {
    NIBBLE_RETURN_IF_ERROR(runner_->Load(part.linear));
  }
  return {};
}

Status SensitivityPass::Layer(int layer) {
  const std::string what = fmt::format("layer {} of {}", layer + 1, model_.config().layers.size());
  NIBBLE_RETURN_IF_ERROR(runner_->BeginLayer(layer));
  for (const LayerStage stage : kLayerStages) NIBBLE_RETURN_IF_ERROR(runner_->Load(stage));
  for (const int probe : live_) {
    Advance(probe);
    for (int i = 0; i < sequences(); ++i) Tell(what);
  }
  for (const LayerStage stage : kLayerStages) {
    for (const StoredLinear& linear : StoredLinears(model_, layer, stage)) {
      const auto probe = by_tensor_.find(linear.tensor);
      if (probe == by_tensor_.end()) continue;
      NIBBLE_RETURN_IF_ERROR(ProbeLinear(linear, probe->second));
      live_.push_back(probe->second);
      for (int i = 0; i < sequences(); ++i) Tell(what);
    }
  }
  Advance(-1);
  return {};
}

Status SensitivityPass::Logits(int probe, const VisitRow& visit) {
  if (probe >= 0 && output_probe_ == probe) {
    const FormatTraits& traits = TraitsOf(probes_[static_cast<size_t>(probe)].format);
    const auto width = static_cast<size_t>(model_.config().width);
    runner_->ReplaceOutput([this, &traits, width](int row, float* to) {
      traits.decode(output_codes_.data() + static_cast<size_t>(row) * traits.RowBytes(width), to,
                    width);
    });
  }
  for (int i = 0; i < sequences(); ++i) {
    const MatrixView<float> hidden = At(probe, i).hidden;
    const auto last = DenseView<const float>(hidden.row(tokens() / 2), scored(), hidden.cols);
    const auto first_row = static_cast<size_t>(i) * static_cast<size_t>(scored());
    NIBBLE_RETURN_IF_ERROR(runner_->Head(last, [&](int first, MatrixView<const float> logits) {
      pool_.ParallelFor(logits.rows, 1, [&](int64_t begin, int64_t end, int) {
        for (int r = static_cast<int>(begin); r < static_cast<int>(end); ++r) {
          visit(first_row + static_cast<size_t>(r), first, logits.row_span(r));
        }
      });
    }));
    Release(probe, i);
  }
  runner_->ReplaceOutput({});
  return {};
}

Status SensitivityPass::BaseLogits() {
  const auto rows = static_cast<size_t>(sequences()) * static_cast<size_t>(scored());
  const auto vocabulary = static_cast<size_t>(model_.config().vocabulary);
  probability_.resize(rows * vocabulary);
  mean_logit_.resize(rows);
  std::vector<RunningSum> sums(rows);
  NIBBLE_RETURN_IF_ERROR(Logits(-1, [&](size_t row, int first, std::span<const float> logits) {
    std::ranges::copy(logits, probability_.data() + row * vocabulary + static_cast<size_t>(first));
    sums[row].Add(ComputeLogSumExp(kernels_, logits).log_sum_exp);
  }));
  for (const RunningSum& sum : sums) log_sum_.push_back(sum.value());
  pool_.ParallelFor(static_cast<int64_t>(rows), 1, [&](int64_t begin, int64_t end, int) {
    for (auto r = static_cast<size_t>(begin); r < static_cast<size_t>(end); ++r) {
      for (float& value : std::span(probability_).subspan(r * vocabulary, vocabulary)) {
        const float logit = value;
        value = static_cast<float>(std::exp(double{logit} - log_sum_[r]));
        mean_logit_[r] += double{value} * double{logit};
      }
    }
  });
  return {};
}

Result<double> SensitivityPass::Divergence(int probe) {
  const auto vocabulary = static_cast<size_t>(model_.config().vocabulary);
  std::vector<RunningSum> sums(log_sum_.size());
  std::vector<double> mean(log_sum_.size());
  NIBBLE_RETURN_IF_ERROR(Logits(probe, [&](size_t row, int first, std::span<const float> logits) {
    const float* p = probability_.data() + row * vocabulary + static_cast<size_t>(first);
    double sum = mean[row];
    for (size_t i = 0; i < logits.size(); ++i) sum += double{p[i]} * double{logits[i]};
    mean[row] = sum;
    sums[row].Add(ComputeLogSumExp(kernels_, logits).log_sum_exp);
  }));
  double total = 0;
  for (size_t r = 0; r < mean.size(); ++r) {
    total += mean_logit_[r] - mean[r] + sums[r].value() - log_sum_[r];
  }
  const double divergence = total / static_cast<double>(mean.size());
  if (!std::isfinite(divergence)) {
    return BadInput("'{}' as {}: the logits are no finite numbers",
                    probes_[static_cast<size_t>(probe)].tensor->name,
                    TraitsOf(probes_[static_cast<size_t>(probe)].format).name);
  }
  return std::max(0.0, divergence);
}

Result<SensitivityResult> SensitivityPass::Finish() {
  // An output matrix of its own starts behind the last layer.
  if (output_probe_ && std::ranges::find(live_, *output_probe_) == live_.end()) {
    const SensitivityProbe& probe = probes_[static_cast<size_t>(*output_probe_)];
    NIBBLE_TRY(output_codes_, Encode(*probe.tensor, false, probe.format));
    Branch(*output_probe_);
    live_.push_back(*output_probe_);
  }
  if (live_.size() != probes_.size()) {
    return BadInput("sensitivity: {} of {} tensors are no matrices of the model",
                    probes_.size() - live_.size(), probes_.size());
  }
  NIBBLE_RETURN_IF_ERROR(BaseLogits());
  SensitivityResult result;
  result.predictions = static_cast<int>(log_sum_.size());
  for (int i = 0; i < static_cast<int>(probes_.size()); ++i) {
    NIBBLE_TRY(const double divergence, Divergence(i));
    result.divergence.push_back(divergence);
    for (int s = 0; s < 2 * sequences(); ++s) Tell("output");
  }
  return result;
}

}  // namespace

Result<SensitivityResult> MeasureSensitivity(const ModelFile& model,
                                             const std::vector<SensitivityProbe>& probes,
                                             const SensitivityOptions& options,
                                             const KernelTable& kernels, ThreadPool& pool) {
  if (options.sequences.empty() || options.sequences.front().size() < 4) {
    return BadInput("sensitivity: expected sequences of at least 4 tokens");
  }
  SensitivityPass pass(model, probes, options, kernels, pool);
  NIBBLE_RETURN_IF_ERROR(pass.Start());
  for (int layer = 0; layer < static_cast<int>(model.config().layers.size()); ++layer) {
    NIBBLE_RETURN_IF_ERROR(pass.Layer(layer));
  }
  return pass.Finish();
}

}  // namespace nibble
