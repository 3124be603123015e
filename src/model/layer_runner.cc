#include "model/layer_runner.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/math.h"
#include "kernels/elementwise.h"
#include "model/config/model_file.h"
#include "model/kv_groups.h"
#include "model/packed_decoder.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

constexpr std::array kQkvLinears = {Linear::kQuery, Linear::kKey, Linear::kValue};
constexpr std::array kOutputLinears = {Linear::kOutput};
constexpr std::array kGateUpLinears = {Linear::kGate, Linear::kUp};
constexpr std::array kDownLinears = {Linear::kDown};

// Values of the layer at hand, which the packed layer points into.
struct LayerVectors {
  std::array<std::vector<float>, kNorms> gains;
  std::array<std::vector<float>, kNorms> norm_biases;
  std::array<std::vector<float>, kLinears> biases;
};

LoadOptions RunnerOptions(const ModelFile& file, int max_tokens) {
  LoadOptions options;
  options.act = Act::kF32;
  options.max_rows = max_tokens;
  options.max_context = file.config().context_length;
  return options;
}

const float* DataOrNull(const std::vector<float>& values) {
  return values.empty() ? nullptr : values.data();
}

}  // namespace

std::span<const Linear> LinearsOf(LayerStage stage) {
  switch (stage) {
    case LayerStage::kQkv:
      return kQkvLinears;
    case LayerStage::kOutput:
      return kOutputLinears;
    case LayerStage::kGateUp:
      return kGateUpLinears;
    case LayerStage::kDown:
      return kDownLinears;
  }
  return {};
}

std::string_view StageName(LayerStage stage) {
  constexpr std::array<std::string_view, 4> kNames = {"qkv", "output", "gate_up", "down"};
  return kNames[static_cast<size_t>(stage)];
}

class LayerRunner::Impl : public PackedDecoder {
 public:
  Impl(const ModelFile& file, int max_tokens, const KernelTable& kernels, ThreadPool& pool)
      : PackedDecoder(file.config(), RunnerOptions(file, max_tokens), kernels, pool), file_(file) {}

  Status Reserve();
  void EmbedTokens(std::span<const TokenId> tokens, MatrixView<float> hidden);
  Status BeginLayer(int layer);
  Status Load(LayerStage stage);
  Status LoadLinear(Linear linear);
  void Drop(LayerStage stage);
  Status Replace(Linear linear, MatrixView<const float> weights);
  MatrixView<const float> Input(LayerStage stage, const LayerSequence& sequence);
  void Finish(const LayerSequence& sequence);
  Status Logits(MatrixView<const float> hidden,
                const std::function<void(int, MatrixView<const float>)>& visit);
  Status LogitBlock(const MatrixRef& rows, int count, MatrixView<float> logits);
  void ReplaceOutput(std::function<void(int, float*)> read) { output_ = std::move(read); }

  size_t bytes() const { return workspace_bytes_ + pages_.size(); }
  AttentionInputs LastAttention() const { return {.q = Query(), .k = Key(), .v = Value()}; }
  PackedLayer& layer() { return weights_.layers[static_cast<size_t>(layer_)]; }
  LayerVectors& vectors() { return vectors_; }

 private:
  Result<PackedMatrix> PackOutput(const MatrixRef& rows, AlignedBuffer& storage);
  // Makes the sequence the one that the decoder's parts work on.
  void Begin(int rows);
  void TakeHidden(const LayerSequence& sequence);
  void GiveHidden(const LayerSequence& sequence);
  void NormRows(Norm norm);

  const ModelFile& file_;
  int layer_ = 0;
  size_t workspace_bytes_ = 0;
  LayerVectors vectors_;
  std::array<AlignedBuffer, kLinears> linears_;  // of the layer at hand
  AlignedBuffer pages_;                          // keys and values of one sequence and layer
  std::vector<PageId> page_ids_;
  std::function<void(int row, float* to)> output_;  // in place of the file's output matrix
};

Status LayerRunner::Impl::Reserve() {
  WorkspaceShape shape =
      MakeWorkspaceShape(config_, file_.tensors(), options_.act, options_.max_rows, pool_.size());
  shape.logit_rows = 0;
  shape.needs = shape.needs | ActNeeds{.f32 = true};
  shape_ = shape;
  workspace_bytes_ = Workspace::Bytes(config_, shape) + Workspace::RopeBytes(config_, shape);
  NIBBLE_RETURN_IF_ERROR(workspace_.Reserve(config_, shape));
  for (const RopeConfig& rope : config_.ropes) {
    ropes_.push_back(ComputeRopeFrequencies(rope, options_.max_context));
  }
  positions_.resize(static_cast<size_t>(options_.max_rows));
  places_.resize(config_.layers.size());
  weights_.layers.resize(config_.layers.size());
  const KvLayout layout = {KvFormat::kF32, KvFormat::kF32, config_.kv_heads, config_.head_dim};
  const int pages = CeilDiv(options_.max_rows, kPageTokens);
  for (int i = 0; i < pages; ++i) page_ids_.emplace_back(i);
  NIBBLE_TRY(pages_, AlignedBuffer::Allocate(static_cast<size_t>(pages) *
                                             RoundUp<size_t>(layout.PieceBytes(), 64)));
  return {};
}

void LayerRunner::Impl::EmbedTokens(std::span<const TokenId> tokens, MatrixView<float> hidden) {
  const auto read = [](const MatrixRef& matrix, int row, float* to) {
    const FormatTraits& traits = TraitsOf(*matrix.tensor->format);
    const auto cols = static_cast<size_t>(matrix.cols);
    traits.decode(matrix.tensor->bytes.data() + static_cast<size_t>(row) * traits.RowBytes(cols),
                  to, cols);
  };
  std::vector<float> learned(static_cast<size_t>(config_.width));
  for (int row = 0; row < hidden.rows; ++row) {
    const int id = tokens[static_cast<size_t>(row)].value();
    NIBBLE_CHECK(id >= 0 && id < config_.vocabulary);
    float* to = hidden.row(row);
    read(file_.tensors().embedding, id, to);
    if (config_.embedding_scale != 1) Scale(kernels_, config_.embedding_scale, hidden.cols, to);
    if (!config_.learned_positions) continue;
    read(file_.tensors().positions, row, learned.data());
    Add(kernels_, learned.data(), hidden.cols, to);
  }
}

Status LayerRunner::Impl::BeginLayer(int layer) {
  for (const LayerStage stage : kLayerStages) Drop(stage);
  layer_ = layer;
  const LayerTensors& tensors = file_.tensors().layers[static_cast<size_t>(layer)];
  PackedLayer& packed = this->layer();
  for (size_t n = 0; n < kNorms; ++n) {
    vectors_.gains[n] = ReadVector(tensors.norms[n].weight, config_.norm_plus_one ? 1.0F : 0.0F);
    vectors_.norm_biases[n] = ReadVector(tensors.norms[n].bias);
    packed.norms[n] = {.weight = DataOrNull(vectors_.gains[n]),
                       .bias = DataOrNull(vectors_.norm_biases[n])};
  }
  for (size_t l = 0; l < kLinears; ++l) {
    vectors_.biases[l] = ReadVector(tensors.linears[l].bias);
    packed.linears[l].bias = DataOrNull(vectors_.biases[l]);
  }
  return {};
}

Status LayerRunner::Impl::Load(LayerStage stage) {
  for (const Linear linear : LinearsOf(stage)) NIBBLE_RETURN_IF_ERROR(LoadLinear(linear));
  return {};
}

Status LayerRunner::Impl::LoadLinear(Linear linear) {
  const LayerTensors& tensors = file_.tensors().layers[static_cast<size_t>(layer_)];
  const auto at = static_cast<size_t>(linear);
  NIBBLE_TRY(layer().linears[at].weight,
             PackOne(file_, tensors[linear].weight, linears_[at], pool_));
  return {};
}

void LayerRunner::Impl::Drop(LayerStage stage) {
  for (const Linear linear : LinearsOf(stage)) {
    layer().linears[static_cast<size_t>(linear)].weight = {};
    linears_[static_cast<size_t>(linear)] = {};
  }
}

Status LayerRunner::Impl::Replace(Linear linear, MatrixView<const float> weights) {
  NIBBLE_CHECK(weights.stride == weights.cols);
  const auto at = static_cast<size_t>(linear);
  const size_t bytes = PackedMatrix::Bytes(Format::kF32, weights.rows, weights.cols);
  linears_[at] = {};
  NIBBLE_TRY(linears_[at], AlignedBuffer::Allocate(bytes));
  const auto values = std::span(
      weights.data, static_cast<size_t>(weights.rows) * static_cast<size_t>(weights.cols));
  layer().linears[at].weight =
      PackedMatrix::Pack(Format::kF32, weights.rows, weights.cols, std::as_bytes(values),
                         linears_[at].as<std::byte>().first(bytes), pool_);
  return {};
}

void LayerRunner::Impl::Begin(int rows) {
  NIBBLE_CHECK(rows > 0 && rows <= options_.max_rows);
  rows_ = rows;
  for (int i = 0; i < rows; ++i) positions_[static_cast<size_t>(i)] = Position{i};
  pending_norm_ = nullptr;
  kept_rows_ = false;
}

void LayerRunner::Impl::TakeHidden(const LayerSequence& sequence) {
  Begin(sequence.hidden.rows);
  for (int r = 0; r < rows_; ++r) {
    std::copy_n(sequence.hidden.row(r), config_.width, Hidden().row(r));
  }
}

void LayerRunner::Impl::GiveHidden(const LayerSequence& sequence) {
  ForRows(pool_, rows_, config_.width,
          [&](int row) { std::copy_n(HiddenRow(row), config_.width, sequence.hidden.row(row)); });
  pending_norm_ = nullptr;
}

void LayerRunner::Impl::NormRows(Norm norm) {
  const PackedNorm& packed = layer()[norm];
  ForRows(pool_, rows_, config_.width,
          [&](int row) { NormRow(packed, Hidden().row(row), config_.width, Normed().row(row)); });
}

MatrixView<const float> LayerRunner::Impl::Input(LayerStage stage, const LayerSequence& sequence) {
  TakeHidden(sequence);
  switch (stage) {
    case LayerStage::kQkv:
      NormRows(Norm::kAttention);
      return Normed();
    case LayerStage::kOutput: {
      KvGroup group;
      group.layers = {layer_};
      group.window = config_.layers[static_cast<size_t>(layer_)].window;
      group.layout = {KvFormat::kF32, KvFormat::kF32, config_.kv_heads, config_.head_dim};
      group.sealed = group.layout;
      const KvTable table = {
          .arena = pages_.data(), .page_bytes = group.PageBytes(), .pages = page_ids_};
      places_[static_cast<size_t>(layer_)] = {.group = 0, .slot = 0, .rotate = false};
      sequences_.assign(1, {.row_begin = 0, .rows = rows_, .first = Position{0}, .kv = {}});
      sequences_[0].kv = group.View(table, 0);
      FillRopes();
      RunQkv(layer_);
      WriteKv(kernels_, pool_, sequences_, Key(), Value());
      Attend(layer_);
      for (int r = 0; r < rows_; ++r) {
        std::copy_n(Context().row(r), Context().cols, sequence.context.row(r));
      }
      return Context();
    }
    case LayerStage::kGateUp:
      for (int r = 0; r < rows_; ++r) {
        std::copy_n(sequence.context.row(r), Context().cols, Context().row(r));
      }
      RunOutput(layer_);
      GiveHidden(sequence);
      NormRows(Norm::kFfn);
      return Normed();
    case LayerStage::kDown: {
      RunGateUp(layer_);
      ForRows(pool_, rows_, config_.ffn_width, [&](int row) { GateRow(row); });
      return Rows(workspace_.gate, config_.ffn_width);
    }
  }
  return {};
}

void LayerRunner::Impl::Finish(const LayerSequence& sequence) {
  TakeHidden(sequence);
  RunGateUp(layer_);
  RunDown(layer_);
  GiveHidden(sequence);
}

Result<PackedMatrix> LayerRunner::Impl::PackOutput(const MatrixRef& rows, AlignedBuffer& storage) {
  if (!output_) return PackOne(file_, rows, storage, pool_);
  const auto cols = static_cast<size_t>(rows.cols);
  std::vector<float> values(static_cast<size_t>(rows.rows) * cols);
  pool_.ParallelFor(rows.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int r = static_cast<int>(begin); r < static_cast<int>(end); ++r) {
      output_(rows.first_row + r, values.data() + static_cast<size_t>(r) * cols);
    }
  });
  const size_t bytes = PackedMatrix::Bytes(Format::kF32, rows.rows, rows.cols);
  NIBBLE_TRY(storage, AlignedBuffer::Allocate(bytes));
  return PackedMatrix::Pack(Format::kF32, rows.rows, rows.cols, std::as_bytes(std::span(values)),
                            storage.as<std::byte>().first(bytes), pool_);
}

Status LayerRunner::Impl::LogitBlock(const MatrixRef& rows, int count, MatrixView<float> logits) {
  AlignedBuffer storage;
  NIBBLE_TRY(const PackedMatrix packed, PackOutput(rows, storage));
  const std::vector<float> bias = ReadVector(file_.tensors().output.bias);
  const std::array tasks = {
      MatmulTask{.weights = &packed,
                 .y = logits,
                 .bias = bias.empty() ? nullptr : bias.data() + rows.first_row}};
  NIBBLE_CHECK(count == packed.rows());
  Matmul(kernels_, pool_, options_.act, workspace_.activations, tasks);
  if (config_.final_soft_cap > 0) SoftCap(kernels_, pool_, config_.final_soft_cap, logits);
  return {};
}

Status LayerRunner::Impl::Logits(MatrixView<const float> hidden,
                                 const std::function<void(int, MatrixView<const float>)>& visit) {
  constexpr size_t kBlockBytes = size_t{32} << 20;
  Begin(hidden.rows);
  const ModelTensors& tensors = file_.tensors();
  const std::vector<float> gain =
      ReadVector(tensors.output_norm.weight, config_.norm_plus_one ? 1.0F : 0.0F);
  const std::vector<float> norm_bias = ReadVector(tensors.output_norm.bias);
  const PackedNorm norm = {.weight = DataOrNull(gain), .bias = DataOrNull(norm_bias)};
  ForRows(pool_, rows_, config_.width,
          [&](int row) { NormRow(norm, hidden.row(row), config_.width, Normed().row(row)); });
  workspace_.activations.Prepare(kernels_, pool_, Normed(), {.f32 = true});
  MatrixRef output = tensors.output.weight ? tensors.output.weight : tensors.embedding;
  const int block =
      std::clamp(static_cast<int>(kBlockBytes / sizeof(float) / static_cast<size_t>(config_.width)),
                 1, output.rows);
  std::vector<float> logits(static_cast<size_t>(block) * static_cast<size_t>(rows_));
  const int vocabulary = output.rows;
  for (int first = 0; first < vocabulary; first += block) {
    output.first_row = first;
    output.rows = std::min(block, vocabulary - first);
    const View view = DenseView(logits.data(), rows_, output.rows);
    NIBBLE_RETURN_IF_ERROR(LogitBlock(output, output.rows, view));
    visit(first, view);
  }
  return {};
}

LayerRunner::LayerRunner(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LayerRunner::~LayerRunner() = default;

Result<std::unique_ptr<LayerRunner>> LayerRunner::Create(const ModelFile& file, int max_tokens,
                                                         const KernelTable& kernels,
                                                         ThreadPool& pool) {
  const int most = std::min(file.config().context_length, int{LoadOptions::kMaxRows});
  if (max_tokens < 1 || max_tokens > most) {
    return BadInput("tokens of a sequence: expected 1 to {}, found {}", most, max_tokens);
  }
  auto impl = std::make_unique<Impl>(file, max_tokens, kernels, pool);
  NIBBLE_RETURN_IF_ERROR(impl->Reserve());
  return std::unique_ptr<LayerRunner>(new LayerRunner(std::move(impl)));
}

const ModelConfig& LayerRunner::config() const { return impl_->config(); }
size_t LayerRunner::workspace_bytes() const { return impl_->bytes(); }
void LayerRunner::Embed(std::span<const TokenId> tokens, MatrixView<float> hidden) {
  NIBBLE_CHECK(std::ssize(tokens) == hidden.rows);
  impl_->EmbedTokens(tokens, hidden);
}
Status LayerRunner::BeginLayer(int layer) { return impl_->BeginLayer(layer); }
Status LayerRunner::Load(LayerStage stage) { return impl_->Load(stage); }
Status LayerRunner::Load(Linear linear) { return impl_->LoadLinear(linear); }
void LayerRunner::Drop(LayerStage stage) { impl_->Drop(stage); }
Status LayerRunner::Replace(Linear linear, MatrixView<const float> weights) {
  return impl_->Replace(linear, weights);
}

void LayerRunner::ReplaceNorm(Norm norm, std::span<const float> gain, std::span<const float> bias) {
  const auto at = static_cast<size_t>(norm);
  LayerVectors& vectors = impl_->vectors();
  vectors.gains[at].assign(gain.begin(), gain.end());
  vectors.norm_biases[at].assign(bias.begin(), bias.end());
  impl_->layer().norms[at] = {.weight = DataOrNull(vectors.gains[at]),
                              .bias = DataOrNull(vectors.norm_biases[at])};
}

void LayerRunner::ReplaceBias(Linear linear, std::span<const float> bias) {
  const auto at = static_cast<size_t>(linear);
  LayerVectors& vectors = impl_->vectors();
  vectors.biases[at].assign(bias.begin(), bias.end());
  impl_->layer().linears[at].bias = DataOrNull(vectors.biases[at]);
}

MatrixView<const float> LayerRunner::Input(LayerStage stage, const LayerSequence& sequence) {
  return impl_->Input(stage, sequence);
}
LayerRunner::AttentionInputs LayerRunner::LastAttention() const { return impl_->LastAttention(); }
void LayerRunner::Finish(const LayerSequence& sequence) { impl_->Finish(sequence); }
void LayerRunner::ReplaceOutput(std::function<void(int row, float* to)> read) {
  impl_->ReplaceOutput(std::move(read));
}
Status LayerRunner::Head(
    MatrixView<const float> hidden,
    const std::function<void(int first, MatrixView<const float> logits)>& visit) {
  return impl_->Logits(hidden, visit);
}

}  // namespace nibble
