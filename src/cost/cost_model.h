#pragma once

#include <memory>
#include <optional>
#include <span>

#include "cost/device_shape.h"
#include "cost/model_shape.h"
#include "cost/number_formats.h"

namespace nibble {

class StepPredictor;
struct StepSequence;

enum class Bound : uint8_t { kMemory, kCompute };

// A decode step: every one of `batch` sequences gets its next token behind `context` others.
struct DecodePoint {
  int batch = 1;
  int context = 0;
  bool operator==(const DecodePoint&) const = default;
};

// Rows of any kind that one step computes: chunks of prompts beside answers.
struct StepWork {
  int rows = 0;
  int logit_rows = 0;  // that the output matrix is multiplied by
  Bytes kv = {};       // of the cache, of all sequences
  double keys = 0;     // that all rows' queries multiply, in all layers
};

struct DecodeCost {
  Bytes weights;  // P_m·w + b·d·w, and of expert layers the experts that the batch chooses
  Bytes kv;       // (c + b)·κ, times the copies that several devices keep
  Flops flops;
  Seconds memory_time;         // B / β over all devices
  Seconds compute_time;        // F / φ
  Seconds communication_time;  // all-reduces between devices
  Seconds overhead;            // t0
  // max(memory, compute) + communication + overhead; on a calibrated machine the sum of its terms.
  Seconds step;
  Bound bound = Bound::kMemory;

  Bytes bytes() const { return weights + kv; }
  TokensPerSecond rate(int batch) const { return Tokens(batch) / step; }
};

struct MemoryCost {
  Bytes weights;
  Bytes kv;
  Bytes device;  // all devices together
  Bytes total() const { return weights + kv; }
  bool fits() const { return total() <= device; }
};

// The part of a layer's experts that a batch reads when every row chooses evenly: of E experts, k a
// row, 1 − (1 − k / E)^batch. 0 for a dense model.
double ExpertsRead(int experts, int per_token, int batch);

// Prices decode steps of one model on one device in one pair of formats. docs/plan.md derives the
// formulas.
class CostModel {
 public:
  struct Setup {
    const ModelShape& shape;
    const DeviceShape& device;
    int devices = 1;
    Counting counting = Counting::kNominal;
    // Nominal counting always computes in bf16; true counting in the weights' own arithmetic,
    // unless weights are only stored in fewer bits.
    bool weight_only = false;
  };
  // Errors: the KV format does not fit the model; devices without a link; own weights without a
  // file.
  static Result<CostModel> Create(const Setup& setup, const WeightFormat& weights,
                                  const KvChoice& kv);

  DecodeCost Decode(const DecodePoint& point) const;
  // Adds consecutive tokens of one sequence from position `first` on: its rows read the cache
  // together.
  void AddRows(StepWork& work, int first, int rows, bool logits) const;
  // A step of any rows, by the formula that Decode is a case of.
  DecodeCost Step(const StepWork& work) const;
  // Of any step, by the formula or, where the machine is calibrated, by its terms.
  Seconds StepTime(std::span<const StepSequence> sequences) const;
  MemoryCost Memory(const DecodePoint& point) const;

  // Largest that fit in memory; 0: not even one.
  int MaxBatch(int context) const;
  std::optional<int> MaxContext(int batch) const;  // none: not even an empty one
  // Tokens of context in total at which the cache passes the weights that a step multiplies.
  std::optional<Tokens> Crossover(int batch) const;

  const KvCost& kv() const { return kv_; }
  double kv_copies() const { return kv_copies_; }
  bool calibrated() const { return calibrated_ != nullptr; }

  static constexpr int kMostBatch = 1 << 20;
  static constexpr int kMostContext = 1 << 28;

 private:
  CostModel(KvCost kv, const DeviceShape& device) : kv_(std::move(kv)), device_(device) {}

  KvCost kv_;
  DeviceShape device_;
  int devices_ = 1;
  double kv_copies_ = 1;
  FlopsPerSecond peak_;
  // Of the model in the weights' format.
  Bytes every_step_;  // but for the output matrix
  Bytes output_;
  Bytes experts_;
  Bytes embedding_row_;
  Bytes stored_;
  Flops dense_flops_;   // per row, but for the output matrix
  Flops output_flops_;  // per row of logits
  Flops expert_flops_;  // per row
  int experts_count_ = 0;
  int experts_per_token_ = 0;
  Flops attention_per_key_;
  struct Layers {
    int window = 0;  // 0: none
    double count = 0;
  };
  std::vector<Layers> layers_;  // by window
  double layer_count_ = 0;
  Bytes hidden_row_;  // one sequence's activations, 16 bits: what devices exchange
  std::shared_ptr<const StepPredictor> calibrated_;  // or none
};

}  // namespace nibble
