#include "advise/model_work.h"

#include <algorithm>

namespace nibble {
namespace {

// Codes of up to four bits meet the faster multiply of the two.
void AddMacs(Format format, Act act, double macs, Macs& sum) {
  const FormatTraits& traits = TraitsOf(format);
  if (act == Act::kF32 || traits.activation_group == 0) {
    sum.f32 += macs;
  } else if (traits.BitsPerWeight() <= 5.0) {
    sum.int4 += macs;
  } else {
    sum.int8 += macs;
  }
}

void AddMatrix(const MatrixRef& matrix, Act act, Macs& sum) {
  if (!matrix) return;
  AddMacs(*matrix.tensor->format, act, static_cast<double>(matrix.rows) * matrix.cols, sum);
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

double ModelWork::AttentionMacs(int first, int rows, bool logits) const {
  const auto macs_at = [](const AttentionWork& layers, int position) {
    const int seen = position + 1;
    return layers.macs_per_key * (layers.window == 0 ? seen : std::min(seen, layers.window));
  };
  double macs = logits ? macs_at(last_attention, first + rows - 1) : 0;
  for (const AttentionWork& layers : attention) {
    for (int position = first; position < first + rows; ++position) {
      macs += macs_at(layers, position);
    }
  }
  return macs;
}

}  // namespace nibble
