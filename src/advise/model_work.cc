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
    for (const LinearRef& linear : layer.linears) AddMatrix(linear.weight, act, work.per_row);
  }
  AddMatrix(tensors.output.weight ? tensors.output.weight : tensors.embedding, act,
            work.per_logit_row);
  const ModelConfig& config = file.config();
  for (const LayerConfig& layer : config.layers) {
    auto same = std::ranges::find(work.attention, layer.window, &AttentionWork::window);
    if (same == work.attention.end()) {
      same = work.attention.insert(same, {.window = layer.window});
    }
    same->macs_per_key += 2.0 * config.heads * config.head_dim;
  }
  return work;
}

double ModelWork::AttentionMacs(int first, int rows) const {
  double macs = 0;
  for (const AttentionWork& layers : attention) {
    for (int position = first; position < first + rows; ++position) {
      const int seen = position + 1;
      macs += layers.macs_per_key * (layers.window == 0 ? seen : std::min(seen, layers.window));
    }
  }
  return macs;
}

}  // namespace nibble
