#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/ids.h"
#include "base/result.h"
#include "model/config.h"
#include "model/config/architecture.h"
#include "tensor/matrix.h"

namespace nibble {

class ModelFile;
class ThreadPool;
struct KernelTable;

// The parts of a block, each with the linears that share its input; in the order in which they are
// computed, which is the order in which calibrated methods quantise them.
enum class LayerStage : uint8_t { kQkv, kOutput, kGateUp, kDown };
inline constexpr LayerStage kLayerStages[] = {LayerStage::kQkv, LayerStage::kOutput,
                                              LayerStage::kGateUp, LayerStage::kDown};
std::span<const Linear> LinearsOf(LayerStage stage);
// The input of a layer's linear, by the name that a tap sees it under.
std::string_view StageName(LayerStage stage);

// What one sequence keeps between the parts of a block, from position 0 on.
struct LayerSequence {
  MatrixView<float> hidden;   // [tokens][width] the residual stream
  MatrixView<float> context;  // [tokens][heads · head_dim] what attention gave
};

// Computes a model layer by layer in f32 (act=f32, kv=f32), a stage at a time and all sequences
// through each, with the weights of one stage in memory. The same bits as Decoder::Forward. For
// each layer: BeginLayer; then per stage Load, Input for every sequence, perhaps Replace; then
// Finish for every sequence.
class LayerRunner {
 public:
  // max_tokens: of a sequence.
  static Result<std::unique_ptr<LayerRunner>> Create(const ModelFile& file, int max_tokens,
                                                     const KernelTable& kernels, ThreadPool& pool);
  ~LayerRunner();

  const ModelConfig& config() const;
  // What the runner owns beside weights: buffers of one sequence.
  size_t workspace_bytes() const;

  // hidden: [tokens][width].
  void Embed(std::span<const TokenId> tokens, MatrixView<float> hidden);

  // Takes a layer's norms and biases; no linear is loaded.
  Status BeginLayer(int layer);
  Status Load(LayerStage stage);
  Status Load(Linear linear);
  void Drop(LayerStage stage);
  // Other weights [outputs][inputs] from now on.
  Status Replace(Linear linear, MatrixView<const float> weights);
  // Other norm gains (the 1 of Gemma's norms counted in) or biases; empty: none.
  void ReplaceNorm(Norm norm, std::span<const float> gain, std::span<const float> bias);
  void ReplaceBias(Linear linear, std::span<const float> bias);

  // The input of a stage's linears, valid until the next call. Computes what lies between it and
  // the stage before, whose linears must be there, and moves the sequence on:
  //   kQkv     the norm of hidden
  //   kOutput  context = attention
  //   kGateUp  hidden += output(context); the norm of hidden
  //   kDown    the gate of gate_up
  // kGateUp once per layer and sequence; the others may be asked again.
  MatrixView<const float> Input(LayerStage stage, const LayerSequence& sequence);
  // [tokens][heads · head_dim] and twice [tokens][kv_heads · head_dim]: what attention worked on,
  // queries and keys normed and rotated. Behind Input(kOutput), until the next call.
  struct AttentionInputs {
    MatrixView<const float> q, k, v;
  };
  AttentionInputs LastAttention() const;
  // hidden += down(gate of gate_up): the input of the next layer.
  void Finish(const LayerSequence& sequence);

  // Another output matrix from now on, whose rows read() gives; nothing: the file's.
  void ReplaceOutput(std::function<void(int row, float* to)> read);
  // Logits of a sequence's rows after the last layer, in blocks of the vocabulary: visit(first,
  // logits [rows][count]). The output matrix is packed block by block.
  Status Head(MatrixView<const float> hidden,
              const std::function<void(int first, MatrixView<const float> logits)>& visit);

 private:
  class Impl;
  explicit LayerRunner(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace nibble
