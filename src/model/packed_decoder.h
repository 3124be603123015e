#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "kernels/attention.h"
#include "kernels/matmul.h"
#include "model/decoder.h"
#include "model/rope_frequencies.h"
#include "model/weights.h"
#include "model/workspace.h"
#include "platform/memory.h"
#include "tensor/matrix.h"

namespace nibble {

// Where a layer's keys and values lie in the groups of this step.
struct LayerPlace {
  int group = -1;
  int slot = 0;
  bool rotate = false;  // queries and keys are turned
};

// The decoder behind Decoder::Load. LayerRunner computes the parts of its layers one by one.
class PackedDecoder : public Decoder {
 public:
  PackedDecoder(const ModelConfig& config, const LoadOptions& options, const KernelTable& kernels,
                ThreadPool& pool)
      : config_(config), options_(options), kernels_(kernels), pool_(pool) {}

  Status Load(const ModelFile& file, OutputChoice output, const WorkspaceShape& shape,
              const MemoryPlan& plan);

  const ModelConfig& config() const override { return config_; }
  const MemoryPlan& plan() const override { return plan_; }
  int max_rows() const override { return options_.max_rows; }
  int max_context() const override { return options_.max_context; }
  size_t WeightBytesPerStep() const override { return weights_.bytes_per_step; }
  void SetTap(LinearTap* tap) override { tap_ = tap; }
  void Forward(const RaggedBatch& batch, std::span<const KvGroup> groups,
               LogitsSink& sink) override;

 protected:
  using View = MatrixView<float>;

  void Begin(const RaggedBatch& batch, std::span<const KvGroup> groups);
  void FillRopes();
  void Embed(std::span<const TokenId> tokens);
  void RunLayer(int layer, std::span<const KvGroup> groups, const RaggedBatch& batch);
  // Drops all other rows of queries and hidden states, if each sequence keeps consecutive ones.
  void KeepRows(std::span<const int> rows);
  void RunQkv(int layer);
  void PlaceHeads(int layer);  // norms and rotations of queries and keys
  void Attend(int layer);
  void RunOutput(int layer);
  void RunGateUp(int layer);
  void RunDown(int layer);
  void GateRow(int row) const;  // the gate of what RunGateUp left, in place
  void Head(std::span<const int> rows, LogitsSink& sink);

  void PlaceSequences(int layer, std::span<const KvGroup> groups, const RaggedBatch& batch);
  void NormRow(const PackedNorm& norm, const float* x, int n, float* y) const;
  // Row r of the residual stream, complete: what AddToHidden left behind is added first.
  float* HiddenRow(int row) const;
  // Runs linears that share an input. make_row makes a row of it first.
  void Multiply(int layer, std::string_view name, MatrixView<const float> x,
                std::span<const MatmulTask> tasks, FunctionRef<void(int row)> make_row = {});
  // hidden += linear(x). Where the model has a norm between, the sum is left to the next use of a
  // row (HiddenRow), which reads it anyway.
  void AddToHidden(int layer, std::string_view name, const PackedLinear& linear,
                   const PackedNorm& norm, MatrixView<const float> x,
                   FunctionRef<void(int row)> make_row = {});

  View Rows(float* data, int cols) const { return DenseView(data, rows_, cols); }
  View Hidden() const { return Rows(workspace_.hidden, config_.width); }
  View Normed() const { return Rows(workspace_.normed, config_.width); }
  View Query() const { return Rows(workspace_.query, config_.heads * config_.head_dim); }
  View Key() const { return Rows(workspace_.key, config_.kv_heads * config_.head_dim); }
  View Value() const { return Rows(workspace_.value, config_.kv_heads * config_.head_dim); }
  View Context() const { return Rows(workspace_.context, config_.heads * config_.head_dim); }

  ModelConfig config_;
  LoadOptions options_;
  const KernelTable& kernels_;
  ThreadPool& pool_;
  MemoryPlan plan_;
  AlignedBuffer arena_;
  ModelWeights weights_;
  Workspace workspace_;
  WorkspaceShape shape_;
  std::vector<RopeFrequencies> ropes_;
  LinearTap* tap_ = nullptr;

  // Of the step that runs.
  int rows_ = 0;
  std::vector<Position> positions_;  // [rows]
  std::vector<LayerPlace> places_;   // [layers]
  std::vector<AttentionSequence> sequences_;
  bool kept_rows_ = false;                    // only the rows with logits are left
  const PackedNorm* pending_norm_ = nullptr;  // of Normed, which is not yet in the residual stream
};

}  // namespace nibble
