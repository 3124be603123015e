#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/activations.h"
#include "model/batch.h"
#include "model/config.h"
#include "model/kv_groups.h"

namespace nibble {

class ModelFile;
class ThreadPool;
struct KernelTable;

// Bytes of everything a loaded model owns, known before loading and kept.
struct MemoryPlan {
  size_t weight_bytes = 0;     // packed matrices, norms, biases
  size_t workspace_bytes = 0;  // activations of one step of max_rows rows, logit blocks, attention
  size_t rope_bytes = 0;       // rotations of the positions of one step
  size_t Total() const { return weight_bytes + workspace_bytes + rope_bytes; }
  // Held beside the weights while loading only: one transposed matrix (gpt2 in Hugging Face form).
  size_t load_scratch_bytes = 0;
  // For people: "weights 94.0 MB + step buffers 40.1 MB + rotations 0.10 MB = 134 MB".
  std::string ToString() const;
};

struct LoadOptions {
  Act act = Act::kInt8;
  std::optional<Act> attention_act = {};  // of attention; none: act. Apart for measurements.
  static constexpr int kMaxRows = 1 << 16;
  int max_rows = 512;   // most rows of one step, 1 to kMaxRows
  int max_context = 0;  // most positions of one sequence, at most the model's own; 0: that.
                        // LongRoPE models choose their factors by it (model/rope_frequencies.h).
};

// The input of every linear layer passes here before it is used (calibration). linear: "qkv",
// "output", "gate_up" and "down" of a layer, and "head" of layer -1.
class LinearTap {
 public:
  virtual ~LinearTap() = default;
  virtual void Input(int layer, std::string_view linear, MatrixView<const float> x) = 0;
};

// A decoder-only transformer with packed weights. One forward pass at a time.
class Decoder {
 public:
  // Reads configuration and tensor directory only. Where a file stores an output beside an
  // embedding that it may be tied to, the plan holds both, and the decoder's own plan what it is.
  static Result<MemoryPlan> Plan(const std::filesystem::path& path, const LoadOptions& options,
                                 const KernelTable& kernels, const ThreadPool& pool);

  static Result<MemoryPlan> Plan(const ModelFile& file, const LoadOptions& options,
                                 const ThreadPool& pool);

  // A GGUF file (any shard of a split one) or a Hugging Face folder. Packs in parallel and drops
  // the mapped originals behind itself.
  static Result<std::unique_ptr<Decoder>> Load(const std::filesystem::path& path,
                                               const LoadOptions& options,
                                               const KernelTable& kernels, ThreadPool& pool);
  // The same from an opened file, or from random weights.
  static Result<std::unique_ptr<Decoder>> Load(const ModelFile& file, const LoadOptions& options,
                                               const KernelTable& kernels, ThreadPool& pool);
  virtual ~Decoder() = default;

  virtual const ModelConfig& config() const = 0;
  virtual const MemoryPlan& plan() const = 0;
  virtual int max_rows() const = 0;
  virtual int max_context() const = 0;

  // Bytes of weights that one step reads whatever its batch (all but embedding rows).
  virtual size_t WeightBytesPerStep() const = 0;

  // Computes the batch, writes its keys and values into the pages, and hands the wanted logits to
  // the sink. groups: the group list the tables were made from. Checked before: ids in range, rows
  // <= max_rows, positions < max_context.
  virtual void Forward(const RaggedBatch& batch, std::span<const KvGroup> groups,
                       LogitsSink& sink) = 0;

  virtual void SetTap(LinearTap* tap) = 0;
};

}  // namespace nibble
