#include "cost/cost_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cost/step_predictor.h"

namespace nibble {
namespace {

// Positions that the queries at first … first + rows - 1 see, each through a window.
double KeysSeen(int window, int first, int rows) {
  const double n = rows;
  const double all = n * first + n * (n + 1) / 2;
  if (window == 0) return all;
  // Queries before position window - 1 see less than a window.
  const double growing = std::clamp(window - 1 - first, 0, rows);
  return growing * first + growing * (growing + 1) / 2 + (n - growing) * window;
}

}  // namespace

double ExpertsRead(int experts, int per_token, int batch) {
  if (experts == 0) return 0;
  return 1 - std::pow(1 - static_cast<double>(per_token) / experts, batch);
}

Result<CostModel> CostModel::Create(const Setup& setup, const WeightFormat& weights,
                                    const KvChoice& kv) {
  const ModelShape& shape = setup.shape;
  if (!weights.mix && !shape.has_file) {
    return BadInput(
        "'own': {} is a shape without a file, so its weights have no format of their "
        "own",
        shape.name);
  }
  if (setup.devices > 1 && setup.device.link.value <= 0) {
    return BadInput(
        "{} devices: nothing is known of a link between two of {}; a SPEC.json with "
        "link_bandwidth says it",
        setup.devices, setup.device.name);
  }
  NIBBLE_TRY(KvCost kv_cost, KvCost::Create(shape, kv, setup.counting));
  CostModel model(std::move(kv_cost), setup.device);
  model.devices_ = setup.devices;
  // A KV head lives on one device at least, so more devices than heads keep copies.
  model.kv_copies_ = std::max(1.0, static_cast<double>(setup.devices) / shape.config.kv_heads);
  const bool wide = setup.counting == Counting::kNominal || setup.weight_only;
  const Arithmetic own = shape.integer_file ? Arithmetic::kInt8 : Arithmetic::kBf16;
  model.peak_ = setup.device.Peak(wide          ? Arithmetic::kBf16
                                  : weights.mix ? weights.arithmetic
                                                : own);
  std::optional<Bytes> table_row;
  for (const WeightGroup& group : shape.groups) {
    const Bytes bytes = BytesOf(group, weights, setup.counting);
    model.stored_ += bytes;
    const Flops flops(2 * group.weights);
    const bool output = group.place.role == TensorRole::kOutput;
    if (group.use == WeightUse::kEveryStep) {
      (output ? model.output_ : model.every_step_) += bytes;
      (output ? model.output_flops_ : model.dense_flops_) += flops;
    }
    if (group.use == WeightUse::kExpert) model.experts_ += bytes;
    if (group.use == WeightUse::kExpert) model.expert_flops_ += flops;
    const bool table = group.use == WeightUse::kLookup || (output && !table_row);
    if (table && group.weights > 0) {
      table_row = bytes * (shape.config.width / group.weights);
    }
  }
  // d·w; a bare number of parameters has no tables.
  model.embedding_row_ =
      table_row.value_or(model.stored_ * shape.config.width / std::max(1.0, shape.TotalWeights()));
  model.experts_count_ = shape.experts;
  model.experts_per_token_ = shape.experts_per_token;
  model.attention_per_key_ = shape.attention_per_key;
  for (const LayerConfig& layer : shape.config.layers) {
    const auto same = std::ranges::find(model.layers_, layer.window, &Layers::window);
    Layers& of = same != model.layers_.end()
                     ? *same
                     : model.layers_.emplace_back(Layers{.window = layer.window, .count = 0});
    ++of.count;
    ++model.layer_count_;
  }
  model.hidden_row_ = Bytes(2.0 * shape.config.width);
  if (setup.device.calibration && setup.counting == Counting::kTrue) {
    NIBBLE_TRY(StepPredictor predictor,
               StepPredictor::Create({.shape = shape,
                                      .calibration = setup.device.calibration,
                                      .weights = weights,
                                      .kv = kv,
                                      .weight_only = setup.weight_only}));
    model.calibrated_ = std::make_shared<const StepPredictor>(std::move(predictor));
  }
  return model;
}

void CostModel::AddRows(StepWork& work, int first, int rows, bool logits) const {
  work.rows += rows;
  work.logit_rows += logits ? 1 : 0;
  work.kv += kv_.ReadBy(first, rows) * kv_copies_;
  for (const Layers& layers : layers_) {
    work.keys += layers.count * KeysSeen(layers.window, first, rows);
  }
}

DecodeCost CostModel::Decode(const DecodePoint& point) const {
  StepWork one;
  AddRows(one, point.context, 1, true);
  DecodeCost cost = Step({.rows = point.batch,
                          .logit_rows = point.batch,
                          .kv = one.kv * point.batch,
                          .keys = one.keys * point.batch});
  if (calibrated_) {
    const StepSequence all{.first = point.context, .count = point.batch};
    const StepCost step = calibrated_->Predict({&all, 1});
    cost.memory_time = step.memory;
    cost.compute_time = step.cpu;
    cost.overhead = step.rows + step.overhead;
    cost.bound = cost.compute_time > cost.memory_time ? Bound::kCompute : Bound::kMemory;
    cost.step = step.total();
  }
  return cost;
}

Seconds CostModel::StepTime(std::span<const StepSequence> sequences) const {
  if (calibrated_) return calibrated_->Predict(sequences).total();
  StepWork work;
  for (const StepSequence& one : sequences) {
    for (int i = 0; i < one.count; ++i) AddRows(work, one.first, one.rows, one.logit_rows > 0);
  }
  return Step(work).step;
}

DecodeCost CostModel::Step(const StepWork& work) const {
  const double rows = work.rows;
  const double chosen =
      experts_count_ == 0 ? 0 : static_cast<double>(experts_per_token_) / experts_count_;
  DecodeCost cost;
  cost.weights = every_step_ + output_ * (work.logit_rows > 0 ? 1 : 0) + embedding_row_ * rows +
                 experts_ * ExpertsRead(experts_count_, experts_per_token_, work.rows);
  cost.kv = work.kv;
  cost.flops = (dense_flops_ + expert_flops_ * chosen) * rows + output_flops_ * work.logit_rows +
               attention_per_key_ * work.keys;
  cost.memory_time = cost.bytes() / devices_ / device_.Bandwidth();
  cost.compute_time = cost.flops / devices_ / peak_;
  if (devices_ > 1) {
    // Two all-reduces a layer; a ring sends 2 (N − 1) / N of the data over each link.
    const Bytes sent = hidden_row_ * (rows * 2 * (devices_ - 1) / devices_);
    cost.communication_time = (sent / device_.link + device_.link_latency) * (2.0 * layer_count_);
  }
  cost.overhead = device_.overhead;
  cost.bound = cost.compute_time > cost.memory_time ? Bound::kCompute : Bound::kMemory;
  cost.step =
      std::max(cost.memory_time, cost.compute_time) + cost.communication_time + cost.overhead;
  return cost;
}

MemoryCost CostModel::Memory(const DecodePoint& point) const {
  return {.weights = stored_,
          .kv = kv_.Held(point.context + 1) * (point.batch * kv_copies_),
          .device = device_.memory * devices_};
}

int CostModel::MaxBatch(int context) const {
  const Bytes left = device_.memory * devices_ - stored_;
  if (left.value < 0) return 0;
  const double most = left / (kv_.Held(context + 1) * kv_copies_);
  int batch = static_cast<int>(std::min(most, static_cast<double>(kMostBatch)));
  // The division rounds; what fits is what Memory says.
  const auto fits = [&](int b) { return Memory({.batch = b, .context = context}).fits(); };
  while (batch > 0 && !fits(batch)) --batch;
  while (batch < kMostBatch && fits(batch + 1)) ++batch;
  return batch;
}

std::optional<int> CostModel::MaxContext(int batch) const {
  const auto fits = [&](int context) {
    return Memory({.batch = batch, .context = context}).fits();
  };
  if (!fits(0)) return std::nullopt;
  int least = 0, most = kMostContext;
  while (least < most) {
    const int middle = most - (most - least) / 2;
    if (fits(middle)) {
      least = middle;
    } else {
      most = middle - 1;
    }
  }
  return least;
}

std::optional<Tokens> CostModel::Crossover(int batch) const {
  DecodePoint point{.batch = batch, .context = 0};
  const Bytes weights = Decode(point).weights - embedding_row_ * batch;
  return kv_.Crossover(weights / kv_copies_, batch);
}

}  // namespace nibble
