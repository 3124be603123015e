#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "cost/calibration.h"
#include "cost/model_shape.h"
#include "cost/number_formats.h"
#include "cost/units.h"

namespace nibble {

// What one sequence, or `count` alike, has in a step: `rows` tokens at positions first, first + 1,
// …, of which the last `logit_rows` give logits. A decode step has 1 and 1.
struct StepSequence {
  int first = 0;
  int rows = 1;
  int logit_rows = 1;
  int count = 1;
};

struct StepCost {
  Bytes weights;      // read
  Bytes kv;           // read
  Seconds matmul;     // products with the weights, reading and multiplying overlapped
  Seconds attention;  // likewise over the pages
  Seconds rows;       // norms, quantising, rotations, gates, logits: what goes with the rows
  Seconds overhead;   // of the step and its layers, whatever they compute
  Seconds memory;     // all bytes at the bandwidth of the working set: what `matmul` and
                      // `attention` would take if multiplying were free,
  Seconds cpu;        // and if reading were

  Seconds total() const { return matmul + attention + rows + overhead; }
};

// Predicts the time of any step of a model on a calibrated machine: decode, prefill, mixed.
// docs/cost-model.md derives the terms. Cheap: no allocation, a few hundred operations a sequence.
class StepPredictor {
 public:
  struct Setup {
    const ModelShape& shape;
    std::shared_ptr<const Calibration> calibration;
    const WeightFormat& weights;
    const KvChoice& kv;
    bool weight_only = false;  // --act f32
  };
  // Errors: a format that was not calibrated or does not fit; own weights without a file; an
  // attention that the engine has not (DeepSeek-V2's latent one).
  static Result<StepPredictor> Create(const Setup& setup);

  StepCost Predict(std::span<const StepSequence> sequences) const;

 private:
  // Matrices of one format that the same rows pass. Work is what the busiest thread has, times the
  // threads: panels do not always divide evenly.
  struct Matrices {
    const KernelRates* kernel = nullptr;
    bool experts = false;
    bool logit_rows_only = false;
    double bytes = 0;
    double few_weights = 0;   // as units of one panel share them: up to kFewRows rows
    double many_weights = 0;  // of two panels
  };
  struct PageRates {
    std::array<AttentionRates, 9> sealed;  // by query rows that share a page
    std::array<AttentionRates, 9> open;
  };
  // Layers whose attention costs the same.
  struct Layers {
    KvGroup group;
    int all = 0;   // that every row passes
    int last = 0;  // 1: the model's last layer is one of them, which rows with logits pass
    PageRates rates = {};
  };
  struct Sum;  // of attention

  Status AddMatrices(const Setup& setup);
  Status AddLayers(const Setup& setup);
  void AddSequence(const Layers& layers, const StepSequence& sequence, Sum& sum) const;
  void Attend(const Layers& layers, std::span<const StepSequence> sequences, double bandwidth,
              StepCost& cost) const;
  void AddRows(double rows, double logit_rows, StepCost& cost) const;
  double KvBytes(const Layers& layers, const StepSequence& sequence) const;

  std::shared_ptr<const Calibration> calibration_;
  ModelConfig config_;
  int experts_ = 0;
  int experts_per_token_ = 0;
  std::vector<Matrices> matrices_;
  std::vector<Layers> layers_;
  Bytes embedding_row_;
  // Numbers of a row and layer: what is normed and quantised before a layer's keys and values are
  // made, and behind them; queries, keys and values; the feed-forward's.
  double front_values_ = 0;
  double back_values_ = 0;
  double place_values_ = 0;
  double gate_values_ = 0;
};

}  // namespace nibble
