#include "model/workspace.h"

#include <algorithm>

#include "base/math.h"
#include "model/weights.h"

namespace nibble {
namespace {

// Logits of one block: enough rows to share one read of the head, at most 32 MiB.
constexpr size_t kLogitBytes = size_t{32} << 20;
constexpr size_t kLogitRows = 64;

// Adds up sizes; with a base it hands out the pieces as well.
class FloatCarver {
 public:
  explicit FloatCarver(std::byte* base) : base_(base) {}
  float* Take(int rows, int cols) {
    float* piece = base_ == nullptr ? nullptr : reinterpret_cast<float*>(base_ + used_);
    used_ +=
        RoundUp<size_t>(static_cast<size_t>(rows) * static_cast<size_t>(cols) * sizeof(float), 64);
    return piece;
  }
  size_t used() const { return used_; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

void CarveFloats(FloatCarver& carver, const ModelConfig& config, const WorkspaceShape& shape,
                 Workspace& workspace) {
  const int rows = shape.max_rows;
  const int kv = config.kv_heads * config.head_dim;
  const int query = config.heads * config.head_dim;
  workspace.hidden = carver.Take(rows, config.width);
  workspace.normed = carver.Take(rows, config.width);
  workspace.query = carver.Take(rows, query);
  workspace.key = carver.Take(rows, kv);
  workspace.value = carver.Take(rows, kv);
  workspace.context = carver.Take(rows, query);
  workspace.gate = carver.Take(rows, config.ffn_width);
  if (config.ffn == FfnKind::kGated) workspace.up = carver.Take(rows, config.ffn_width);
  workspace.head = carver.Take(shape.logit_rows, config.width);
  workspace.logits = carver.Take(shape.logit_rows, config.vocabulary);
}

void CarveRopes(FloatCarver& carver, const ModelConfig& config, const WorkspaceShape& shape,
                Workspace& workspace) {
  for (const RopeConfig& rope : config.ropes) {
    float* cos = carver.Take(shape.max_rows, rope.dims / 2);
    float* sin = carver.Take(shape.max_rows, rope.dims / 2);
    workspace.ropes.push_back({.cos = cos, .sin = sin});
  }
}

size_t FloatBytes(const ModelConfig& config, const WorkspaceShape& shape) {
  FloatCarver carver(nullptr);
  Workspace unused;
  CarveFloats(carver, config, shape, unused);
  return carver.used();
}

}  // namespace

AttentionShape MakeAttentionShape(const ModelConfig& config, int layer) {
  const LayerConfig& own = config.layers[static_cast<size_t>(layer)];
  return {.heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .scale = own.attention_scale > 0 ? own.attention_scale : config.attention_scale,
          .soft_cap = config.attention_soft_cap,
          .window = own.window,
          .sinks = nullptr};
}

WorkspaceShape MakeWorkspaceShape(const ModelConfig& config, const ModelTensors& tensors, Act act,
                                  int max_rows, int threads) {
  WorkspaceShape shape;
  shape.max_rows = max_rows;
  shape.threads = threads;
  const size_t row_bytes = static_cast<size_t>(config.vocabulary) * sizeof(float);
  const size_t block = std::clamp(kLogitBytes / row_bytes, size_t{1}, kLogitRows);
  shape.logit_rows = std::min(static_cast<int>(block), max_rows);
  const auto add = [&](const MatrixRef& matrix) {
    if (!matrix) return;
    shape.needs =
        shape.needs | PackedMatrix::NeedsOf(*matrix.tensor->format, act, InputForm(*matrix.tensor));
    shape.max_inputs = std::max(shape.max_inputs, matrix.cols);
  };
  for (const LayerTensors& layer : tensors.layers) {
    for (const LinearRef& linear : layer.linears) add(linear.weight);
  }
  add(tensors.output.weight ? tensors.output.weight : tensors.embedding);
  shape.attention = MakeAttentionShape(config, 0);
  for (int i = 1; i < static_cast<int>(config.layers.size()); ++i) {
    const AttentionShape other = MakeAttentionShape(config, i);
    if (AttentionWorkspace::Bytes(other, threads) >
        AttentionWorkspace::Bytes(shape.attention, threads)) {
      shape.attention = other;
    }
  }
  return shape;
}

size_t Workspace::Bytes(const ModelConfig& config, const WorkspaceShape& shape) {
  return FloatBytes(config, shape) +
         ActivationBlock::Bytes(shape.max_rows, shape.max_inputs, shape.needs) +
         AttentionWorkspace::Bytes(shape.attention, shape.threads);
}

size_t Workspace::RopeBytes(const ModelConfig& config, const WorkspaceShape& shape) {
  FloatCarver carver(nullptr);
  Workspace unused;
  CarveRopes(carver, config, shape, unused);
  return carver.used();
}

Status Workspace::Reserve(const ModelConfig& config, const WorkspaceShape& shape) {
  const size_t bytes = FloatBytes(config, shape) + RopeBytes(config, shape);
  NIBBLE_TRY(storage_, AlignedBuffer::Allocate(bytes));
  storage_.Touch();  // as planned, before the first long step
  FloatCarver carver(storage_.data());
  CarveFloats(carver, config, shape, *this);
  CarveRopes(carver, config, shape, *this);
  NIBBLE_RETURN_IF_ERROR(activations.Reserve(shape.max_rows, shape.max_inputs, shape.needs));
  NIBBLE_RETURN_IF_ERROR(attention.Reserve(shape.attention, shape.threads));
  attention.buffer().Touch();
  return {};
}

}  // namespace nibble
