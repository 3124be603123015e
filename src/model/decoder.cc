#include "model/decoder.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/hadamard.h"
#include "kernels/kv_scales.h"
#include "kernels/matmul.h"
#include "model/config/model_file.h"
#include "model/packed_decoder.h"
#include "platform/cpu.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

Gate KernelGate(GateKind kind) {
  switch (kind) {
    case GateKind::kSilu:
      return Gate::kSilu;
    case GateKind::kGeluTanh:
      return Gate::kGeluTanh;
    case GateKind::kGeluErf:
      return Gate::kGeluErf;
  }
  return Gate::kSilu;
}

}  // namespace

Status PackedDecoder::Load(const ModelFile& file, OutputChoice output, const WorkspaceShape& shape,
                           const MemoryPlan& plan) {
  plan_ = plan;
  shape_ = shape;
  const ModelTensors& tensors = file.tensors();
  if (tensors.tie_stored_output && output == OutputChoice::kStored) {
    config_.tied_embeddings = false;
    config_.parameters += static_cast<int64_t>(tensors.output.weight.tensor->elements());
  }
  const auto allocate = [&]() -> Status {
    NIBBLE_TRY(arena_, AlignedBuffer::Allocate(plan.weight_bytes));
    NIBBLE_RETURN_IF_ERROR(InterleaveMemory(arena_.as<std::byte>(), pool_.nodes()));
    NIBBLE_RETURN_IF_ERROR(workspace_.Reserve(config_, shape));
    NIBBLE_TRY(weights_,
               PackWeights(file, output, arena_.as<std::byte>().first(plan.weight_bytes), pool_));
    return {};
  };
  if (const Status status = allocate(); !status) {
    Error error = status.error();
    if (error.kind == ErrorKind::kNoRoom) error.message += fmt::format(" ({})", plan.ToString());
    return std::unexpected(std::move(error));
  }
  for (const RopeConfig& rope : config_.ropes) {
    ropes_.push_back(ComputeRopeFrequencies(rope, options_.max_context));
  }
  const auto rows = static_cast<size_t>(options_.max_rows);
  positions_.resize(rows);
  places_.resize(config_.layers.size());
  sequences_.reserve(rows);
  return {};
}

void PackedDecoder::Begin(const RaggedBatch& batch, std::span<const KvGroup> groups) {
  rows_ = static_cast<int>(batch.tokens.size());
  NIBBLE_CHECK(rows_ > 0 && rows_ <= options_.max_rows);
  NIBBLE_CHECK(batch.sequences.size() <= batch.tokens.size());
  sequences_.clear();
  int next = 0;
  for (const BatchSequence& sequence : batch.sequences) {
    NIBBLE_CHECK(sequence.row_begin == next && sequence.rows > 0);
    NIBBLE_CHECK(sequence.tables.size() == groups.size());
    next += sequence.rows;
    NIBBLE_CHECK(next <= rows_ && sequence.first.value() >= 0);
    NIBBLE_CHECK(sequence.first.value() + sequence.rows <= options_.max_context);
    const auto row = positions_.begin() + sequence.row_begin;
    for (int i = 0; i < sequence.rows; ++i) row[i] = sequence.first + i;
    sequences_.push_back({.row_begin = sequence.row_begin,
                          .rows = sequence.rows,
                          .first = sequence.first,
                          .kv = {}});
  }
  NIBBLE_CHECK(next == rows_);
  for (size_t i = 0; i < batch.logit_rows.size(); ++i) {
    const int row = batch.logit_rows[i];
    NIBBLE_CHECK(row > (i == 0 ? -1 : batch.logit_rows[i - 1]) && row < rows_);
  }
  for (size_t g = 0; g < groups.size(); ++g) {
    for (size_t slot = 0; slot < groups[g].layers.size(); ++slot) {
      places_[static_cast<size_t>(groups[g].layers[slot])] = {
          .group = static_cast<int>(g), .slot = static_cast<int>(slot), .rotate = groups[g].rotate};
    }
  }
}

void PackedDecoder::FillRopes() {
  for (size_t r = 0; r < ropes_.size(); ++r) {
    const RopeFrequencies& rope = ropes_[r];
    const size_t pairs = rope.inv_freq.size();
    const Workspace::RopeRows& out = workspace_.ropes[r];
    pool_.ParallelFor(rows_, 16, [&](int64_t begin, int64_t end, int) {
      for (auto row = static_cast<size_t>(begin); row < static_cast<size_t>(end); ++row) {
        FillRopeRow(positions_[row], rope.inv_freq, rope.factor, out.cos + row * pairs,
                    out.sin + row * pairs);
      }
    });
  }
}

void PackedDecoder::Embed(std::span<const TokenId> tokens) {
  const View hidden = Hidden();
  pool_.ParallelFor(rows_, 4, [&](int64_t begin, int64_t end, int) {
    for (int row = static_cast<int>(begin); row < end; ++row) {
      const int id = tokens[static_cast<size_t>(row)].value();
      NIBBLE_CHECK(id >= 0 && id < config_.vocabulary);
      float* to = hidden.row(row);
      weights_.embedding.DecodeRow(id, to);
      if (config_.embedding_scale != 1) Scale(kernels_, config_.embedding_scale, hidden.cols, to);
      if (!config_.learned_positions) continue;
      float* learned = Normed().row(row);
      weights_.positions.DecodeRow(positions_[static_cast<size_t>(row)].value(), learned);
      Add(kernels_, learned, hidden.cols, to);
    }
  });
}

void PackedDecoder::PlaceSequences(int layer, std::span<const KvGroup> groups,
                                   const RaggedBatch& batch) {
  const LayerPlace place = places_[static_cast<size_t>(layer)];
  NIBBLE_CHECK(place.group >= 0);
  const KvGroup& group = groups[static_cast<size_t>(place.group)];
  for (size_t i = 0; i < sequences_.size(); ++i) {
    sequences_[i].kv =
        group.View(batch.sequences[i].tables[static_cast<size_t>(place.group)], place.slot);
  }
}

void PackedDecoder::NormRow(const PackedNorm& norm, const float* x, int n, float* y) const {
  const NormParams params = {norm.weight, norm.bias, config_.norm_eps};
  if (config_.norm == NormKind::kLayer) {
    LayerNorm(kernels_, params, x, n, y);
  } else {
    RmsNorm(kernels_, params, x, n, y);
  }
}

float* PackedDecoder::HiddenRow(int row) const {
  float* hidden = Hidden().row(row);
  if (pending_norm_ != nullptr) {
    float* added = Normed().row(row);
    NormRow(*pending_norm_, added, config_.width, added);
    Add(kernels_, added, config_.width, hidden);
  }
  return hidden;
}

void PackedDecoder::Multiply(int layer, std::string_view name, MatrixView<const float> x,
                             std::span<const MatmulTask> tasks,
                             FunctionRef<void(int row)> make_row) {
  const auto run = [&](std::span<const MatmulTask> alike, bool first) {
    ActNeeds needs;
    for (const MatmulTask& task : alike) needs = needs | task.weights->Needs(options_.act);
    workspace_.activations.Prepare(kernels_, pool_, x, needs,
                                   first ? make_row : FunctionRef<void(int row)>(),
                                   alike.front().weights->input());
    if (first && tap_ != nullptr) tap_->Input(layer, name, x);
    Matmul(kernels_, pool_, options_.act, workspace_.activations, alike);
  };
  const auto wants = [](const ActForm& form) {
    return [&form](const MatmulTask& task) { return task.weights->input() == form; };
  };
  if (std::ranges::all_of(tasks, wants(tasks.front().weights->input()))) return run(tasks, true);
  // Linears of a quantised checkpoint may each want the input in a form of their own.
  std::vector<MatmulTask> left(tasks.begin(), tasks.end());
  for (bool first = true; !left.empty(); first = false) {
    const ActForm form = left.front().weights->input();
    const auto others = std::stable_partition(left.begin(), left.end(), wants(form));
    run(std::span(left.begin(), others), first);
    left.erase(left.begin(), others);
  }
}

void PackedDecoder::AddToHidden(int layer, std::string_view name, const PackedLinear& linear,
                                const PackedNorm& norm, MatrixView<const float> x,
                                FunctionRef<void(int row)> make_row) {
  const bool normed = config_.post_norms;
  const std::array tasks = {MatmulTask{.weights = &linear.weight,
                                       .y = normed ? Normed() : Hidden(),
                                       .bias = linear.bias,
                                       .accumulate = !normed}};
  Multiply(layer, name, x, tasks, make_row);
  pending_norm_ = normed ? &norm : nullptr;
}

void PackedDecoder::RunQkv(int layer) {
  const PackedLayer& weights = weights_.layers[static_cast<size_t>(layer)];
  const PackedLinear& q = weights[Linear::kQuery];
  const PackedLinear& k = weights[Linear::kKey];
  const PackedLinear& v = weights[Linear::kValue];
  const std::array tasks = {MatmulTask{.weights = &q.weight, .y = Query(), .bias = q.bias},
                            MatmulTask{.weights = &k.weight, .y = Key(), .bias = k.bias},
                            MatmulTask{.weights = &v.weight, .y = Value(), .bias = v.bias}};
  Multiply(layer, "qkv", Normed(), tasks, [&](int row) {
    NormRow(weights[Norm::kAttention], HiddenRow(row), config_.width, Normed().row(row));
  });
  pending_norm_ = nullptr;
  PlaceHeads(layer);
}

void PackedDecoder::PlaceHeads(int layer) {
  const PackedLayer& weights = weights_.layers[static_cast<size_t>(layer)];
  const int index = config_.layers[static_cast<size_t>(layer)].rope;
  const auto rope = static_cast<size_t>(std::max(index, 0));
  const int pairs = index < 0 ? 0 : static_cast<int>(ropes_[rope].inv_freq.size());
  const bool rotate = places_[static_cast<size_t>(layer)].rotate;
  if (!config_.qk_norm && pairs == 0 && !rotate) return;
  RopeTable table;
  if (pairs > 0) {
    table = {.cos = Rows(workspace_.ropes[rope].cos, pairs),
             .sin = Rows(workspace_.ropes[rope].sin, pairs),
             .interleaved = config_.ropes[rope].interleaved};
  }
  const auto place = [&](Norm norm, int heads, View x, int row) {
    const auto cols = static_cast<size_t>(x.cols);
    float* head = x.row(row);
    for (int h = 0; config_.qk_norm && h < heads; ++h, head += config_.head_dim) {
      NormRow(weights[norm], head, config_.head_dim, head);
    }
    if (pairs > 0) Rope(kernels_, table, row, heads, std::span(x.row(row), cols));
    if (rotate) HadamardRotate(config_.head_dim, std::span(x.row(row), cols));
  };
  ForRows(pool_, rows_, Query().cols + Key().cols, [&](int row) {
    place(Norm::kQuery, config_.heads, Query(), row);
    place(Norm::kKey, config_.kv_heads, Key(), row);
  });
}

void PackedDecoder::Attend(int layer) {
  AttentionShape shape = MakeAttentionShape(config_, layer);
  shape.act = options_.attention_act.value_or(options_.act);
  Attention(kernels_, pool_, shape, {.sequences = sequences_, .q = Query(), .out = Context()},
            workspace_.attention);
}

void PackedDecoder::RunOutput(int layer) {
  const PackedLayer& weights = weights_.layers[static_cast<size_t>(layer)];
  AddToHidden(layer, "output", weights[Linear::kOutput], weights[Norm::kPostAttention], Context());
}

void PackedDecoder::RunGateUp(int layer) {
  const PackedLayer& weights = weights_.layers[static_cast<size_t>(layer)];
  const PackedLinear& gate = weights[Linear::kGate];
  const PackedLinear& up = weights[Linear::kUp];
  const bool gated = config_.ffn == FfnKind::kGated;
  const View inner = Rows(workspace_.gate, config_.ffn_width);
  const View second = gated ? Rows(workspace_.up, config_.ffn_width) : View{};
  const std::array tasks = {
      MatmulTask{.weights = &up.weight, .y = gated ? second : inner, .bias = up.bias},
      MatmulTask{.weights = &gate.weight, .y = inner, .bias = gate.bias}};
  const auto used = std::span(tasks).first(gated ? 2 : 1);
  Multiply(layer, "gate_up", Normed(), used, [&](int row) {
    NormRow(weights[Norm::kFfn], HiddenRow(row), config_.width, Normed().row(row));
  });
  pending_norm_ = nullptr;
}

void PackedDecoder::RunDown(int layer) {
  const PackedLayer& weights = weights_.layers[static_cast<size_t>(layer)];
  const View inner = Rows(workspace_.gate, config_.ffn_width);
  AddToHidden(layer, "down", weights[Linear::kDown], weights[Norm::kPostFfn], inner,
              [&](int row) { GateRow(row); });
}

void PackedDecoder::GateRow(int row) const {
  const View inner = Rows(workspace_.gate, config_.ffn_width);
  const bool gated = config_.ffn == FfnKind::kGated;
  const View second = gated ? Rows(workspace_.up, config_.ffn_width) : View{};
  ApplyGate(kernels_, KernelGate(config_.gate), inner.row(row), gated ? second.row(row) : nullptr,
            inner.cols, inner.row(row));
}

void PackedDecoder::KeepRows(std::span<const int> rows) {
  if (static_cast<int>(rows.size()) == rows_) return;
  std::vector<AttentionSequence> kept;
  kept.reserve(sequences_.size());
  size_t next = 0;
  for (const AttentionSequence& sequence : sequences_) {
    const size_t begin = next;
    while (next < rows.size() && rows[next] < sequence.row_begin + sequence.rows) ++next;
    if (begin == next) continue;
    const int count = static_cast<int>(next - begin);
    const int skipped = rows[begin] - sequence.row_begin;
    // A sequence's rows are consecutive positions.
    if (rows[next - 1] - rows[begin] + 1 != count) return;
    kept.push_back({.row_begin = static_cast<int>(begin),
                    .rows = count,
                    .first = sequence.first + skipped,
                    .kv = sequence.kv});
  }
  const auto move_rows = [&](View x) {
    for (size_t i = 0; i < rows.size(); ++i) {
      std::copy_n(x.row(rows[i]), x.cols, x.row(static_cast<int>(i)));
    }
  };
  move_rows(Query());
  move_rows(Hidden());
  sequences_ = std::move(kept);
  rows_ = static_cast<int>(rows.size());
  kept_rows_ = true;
}

void PackedDecoder::RunLayer(int layer, std::span<const KvGroup> groups, const RaggedBatch& batch) {
  RunQkv(layer);
  PlaceSequences(layer, groups, batch);
  const LayerConfig& own = config_.layers[static_cast<size_t>(layer)];
  // A rotation spreads what the checkpoint's scales were made for.
  const bool rotate = places_[static_cast<size_t>(layer)].rotate;
  const KvScales scales = rotate ? KvScales{} : KvScales{own.key_scale, own.value_scale};
  WriteKv(kernels_, pool_, sequences_, Key(), Value(), scales);
  // After the last layer's keys and values only rows whose logits are wanted go on: of a chunk in
  // the middle of a prompt none, of its end one.
  if (layer + 1 == static_cast<int>(config_.layers.size())) {
    // A tap sees all rows of every linear.
    if (tap_ == nullptr && batch.logit_rows.empty()) return;
    if (tap_ == nullptr) KeepRows(batch.logit_rows);
  }
  Attend(layer);
  RunOutput(layer);
  RunGateUp(layer);
  RunDown(layer);
}

void PackedDecoder::Head(std::span<const int> rows, LogitsSink& sink) {
  const PackedMatrix& head = weights_.head();
  const auto block = static_cast<size_t>(shape_.logit_rows);
  for (size_t first = 0; first < rows.size(); first += block) {
    const auto count = static_cast<int>(std::min(block, rows.size() - first));
    const View input = DenseView(workspace_.head, count, config_.width);
    const View logits = DenseView(workspace_.logits, count, config_.vocabulary);
    const std::array tasks = {
        MatmulTask{.weights = &head, .y = logits, .bias = weights_.output.bias}};
    Multiply(-1, "head", input, tasks, [&](int i) {
      const auto index = static_cast<int>(first) + i;
      const int row = kept_rows_ ? index : rows[static_cast<size_t>(index)];
      NormRow(weights_.output_norm, HiddenRow(row), config_.width, input.row(i));
    });
    if (config_.final_soft_cap > 0) SoftCap(kernels_, pool_, config_.final_soft_cap, logits);
    sink.Rows(static_cast<int>(first), logits);
  }
}

void PackedDecoder::Forward(const RaggedBatch& batch, std::span<const KvGroup> groups,
                            LogitsSink& sink) {
  Begin(batch, groups);
  pending_norm_ = nullptr;
  kept_rows_ = false;
  FillRopes();
  Embed(batch.tokens);
  for (int layer = 0; layer < static_cast<int>(config_.layers.size()); ++layer) {
    RunLayer(layer, groups, batch);
  }
  Head(batch.logit_rows, sink);
}

namespace {

// The options with the model's context filled in.
Result<LoadOptions> CheckOptions(const LoadOptions& options, const ModelConfig& config) {
  if (options.max_rows < 1 || options.max_rows > LoadOptions::kMaxRows) {
    return BadInput("rows of one step: expected 1 to {}, found {}", int{LoadOptions::kMaxRows},
                    options.max_rows);
  }
  LoadOptions checked = options;
  if (checked.max_context == 0) checked.max_context = config.context_length;
  if (checked.max_context < 1 || checked.max_context > config.context_length) {
    return BadInput("context: expected 1 to the model's {} positions, found {}",
                    config.context_length, options.max_context);
  }
  return checked;
}

MemoryPlan MakePlan(const ModelFile& file, OutputChoice output, const WorkspaceShape& shape) {
  const WeightSizes sizes = MeasureWeights(file, output);
  return {.weight_bytes = sizes.arena_bytes,
          .workspace_bytes = Workspace::Bytes(file.config(), shape),
          .rope_bytes = Workspace::RopeBytes(file.config(), shape),
          .load_scratch_bytes = sizes.scratch_bytes};
}

}  // namespace

std::string MemoryPlan::ToString() const {
  const auto text = [](size_t bytes) { return FormatBytes(static_cast<double>(bytes)); };
  return fmt::format("weights {} + step buffers {} + rotations {} = {}{}", text(weight_bytes),
                     text(workspace_bytes), text(rope_bytes), text(Total()),
                     load_scratch_bytes == 0
                         ? ""
                         : fmt::format(", and {} while loading", text(load_scratch_bytes)));
}

Result<MemoryPlan> Decoder::Plan(const std::filesystem::path& path, const LoadOptions& options,
                                 const KernelTable& /*kernels*/, const ThreadPool& pool) {
  NIBBLE_TRY(const ModelFile file, ModelFile::Open(path));
  return Plan(file, options, pool);
}

Result<MemoryPlan> Decoder::Plan(const ModelFile& file, const LoadOptions& options,
                                 const ThreadPool& pool) {
  NIBBLE_TRY(const LoadOptions checked, CheckOptions(options, file.config()));
  return MakePlan(file, OutputChoice::kStored,
                  MakeWorkspaceShape(file.config(), file.tensors(), checked.act, checked.max_rows,
                                     pool.size()));
}

Result<std::unique_ptr<Decoder>> Decoder::Load(const std::filesystem::path& path,
                                               const LoadOptions& options,
                                               const KernelTable& kernels, ThreadPool& pool) {
  NIBBLE_TRY(const ModelFile file, ModelFile::Open(path));
  auto decoder = Load(file, options, kernels, pool);
  if (!decoder) return Within(path.string(), decoder.error());
  return decoder;
}

Result<std::unique_ptr<Decoder>> Decoder::Load(const ModelFile& file, const LoadOptions& options,
                                               const KernelTable& kernels, ThreadPool& pool) {
  NIBBLE_TRY(const LoadOptions checked, CheckOptions(options, file.config()));
  const WorkspaceShape shape =
      MakeWorkspaceShape(file.config(), file.tensors(), checked.act, checked.max_rows, pool.size());
  const bool tied = file.tensors().tie_stored_output && file.OutputEqualsEmbedding();
  const OutputChoice output = tied ? OutputChoice::kEmbedding : OutputChoice::kStored;
  const MemoryPlan plan = MakePlan(file, output, shape);
  const size_t memory = ReadTopology().memory_total;
  if (memory > 0 && plan.Total() + plan.load_scratch_bytes > memory) {
    return Fail(ErrorKind::kNoRoom, "needs {}, and this machine grants {:.1f} MiB", plan.ToString(),
                static_cast<double>(memory) / (1 << 20));
  }
  auto decoder = std::make_unique<PackedDecoder>(file.config(), checked, kernels, pool);
  NIBBLE_RETURN_IF_ERROR(decoder->Load(file, output, shape, plan));
  return decoder;
}

}  // namespace nibble
