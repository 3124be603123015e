#include "advise/model_work.h"

#include <algorithm>

namespace nibble {
namespace {

void AddMatrix(const MatrixRef& matrix, Act act, Macs& sum) {
  if (!matrix) return;
  sum.Of(PeakOf(*matrix.tensor->format, act)) += static_cast<double>(matrix.rows) * matrix.cols;
}

}  // namespace

Macs& Macs::operator+=(const Macs& other) {
  int4 += other.int4;
  int8 += other.int8;
  f32 += other.f32;
  return *this;
}

Macs Macs::operator*(double factor) const { return {int4 * factor, int8 * factor, f32 * factor}; }

ModelWork ComputeWork(const ModelFile& file, Act act) {
  ModelWork work;
  const ModelTensors& tensors = file.tensors();
  for (const LayerTensors& layer : tensors.layers) {
    const bool last = &layer == &tensors.layers.back();
    for (size_t i = 0; i < kLinears; ++i) {
      const bool each = !last || i <= static_cast<size_t>(Linear::kValue);
      AddMatrix(layer.linears[i].weight, act, each ? work.per_row : work.per_logit_row);
    }
  }
  AddMatrix(tensors.output.weight ? tensors.output.weight : tensors.embedding, act,
            work.per_logit_row);
  const ModelConfig& config = file.config();
  const double per_key = 2.0 * config.heads * config.head_dim;
  work.last_attention = {.window = config.layers.back().window, .macs_per_key = per_key};
  for (const LayerConfig& layer : std::span(config.layers).first(config.layers.size() - 1)) {
    auto same = std::ranges::find(work.attention, layer.window, &AttentionWork::window);
    if (same == work.attention.end()) {
      same = work.attention.insert(same, {.window = layer.window});
    }
    same->macs_per_key += per_key;
  }
  return work;
}

Macs ModelWork::AttentionMacs(int first, int rows, bool logits, const KvPeaks& kv) const {
  Macs macs;
  const auto add = [&](const AttentionWork& layers, int position) {
    const int begin = layers.window == 0 ? 0 : std::max(0, position + 1 - layers.window);
    const int border = std::max(begin, position / kv.unit_tokens * kv.unit_tokens);
    const double each = layers.macs_per_key / 2;  // QKᵀ; and PV
    macs.Of(kv.k) += each * (border - begin);
    macs.Of(kv.v) += each * (border - begin);
    macs.f32 += layers.macs_per_key * (position + 1 - border);
  };
  if (logits) add(last_attention, first + rows - 1);
  for (const AttentionWork& layers : attention) {
    for (int position = first; position < first + rows; ++position) add(layers, position);
  }
  return macs;
}

Act ModelWork::act() const {
  const bool integer = per_row.int4 + per_row.int8 + per_logit_row.int4 + per_logit_row.int8 > 0;
  return integer ? Act::kInt8 : Act::kF32;
}

}  // namespace nibble
