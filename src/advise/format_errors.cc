#include "advise/format_errors.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/paging.h"
#include "base/split_mix.h"
#include "format/kv_codec.h"
#include "model/config/model_file.h"
#include "platform/clock.h"
#include "platform/thread_pool.h"
#include "quantize/budget.h"
#include "quantize/tensor_choice.h"

namespace nibble {
namespace {

// First, last and two between of the layers, by the number in a GGUF name "blk.7.ffn_up.weight";
// what is in no layer is the output or the embedding.
bool IsSampled(const std::string& name, int layers) {
  if (!name.starts_with("blk.")) return true;
  const int layer = std::atoi(name.c_str() + 4);
  return layer == 0 || layer == layers - 1 || layer == layers / 3 || layer == 2 * layers / 3;
}

}  // namespace

Result<std::vector<SampledMix>> SampleMixes(const ModelFile& model,
                                            std::span<const FormatMix> mixes, ThreadPool& pool) {
  std::vector<SampledMix> samples;
  const auto layers = static_cast<int>(model.config().layers.size());
  for (const FormatMix& mix : mixes) {
    NIBBLE_TRY(const std::vector<TensorChoice> choices, ChooseFormats(model, {.mix = mix}));
    SampledMix sample;
    double weights = 0;
    double sampled = 0;
    const double started = MonotonicSeconds();
    for (const TensorChoice& choice : choices) {
      if (!choice.matrix || choice.view.tensor == nullptr || !IsSampled(choice.name(), layers)) {
        continue;
      }
      const Format formats[] = {choice.to};
      const double error = SampleErrors(choice.view, formats, pool).front();
      const auto elements = static_cast<double>(choice.view.elements());
      sample.squared_error += error * elements;
      weights += elements;
      const auto rows = static_cast<double>(choice.view.rows());
      sampled += elements * std::min(1.0, 256 / rows);
    }
    if (weights > 0) sample.squared_error /= weights;
    if (sampled > 0) sample.seconds_per_weight = (MonotonicSeconds() - started) / sampled;
    samples.push_back(sample);
  }
  return samples;
}

double KvSquaredError(KvFormat format, int head_dim) {
  constexpr int kBlocks = 16;
  constexpr uint64_t kSeed = 1;
  if (format == KvFormat::kF32 || format == KvFormat::kF16) return 0;
  const auto count = static_cast<size_t>(kPageTokens * head_dim);
  std::vector<float> x(count);
  std::vector<float> decoded(count);
  double error = 0;
  double squares = 0;
  uint64_t draw = 0;
  for (int block = 0; block < kBlocks; ++block) {
    for (float& value : x) {  // Box and Muller
      const double radius = std::sqrt(-2 * std::log(UniformOf(SplitMixAt(kSeed, draw++))));
      value = static_cast<float>(
          radius * std::cos(2 * std::numbers::pi * UniformOf(SplitMixAt(kSeed, draw++))));
    }
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      std::vector<std::byte> bytes(KvBlockBytes(format, side, head_dim));
      float page_float = 0;
      EncodeKv(format, side, x.data(), head_dim, bytes.data(), &page_float);
      DecodeKv(format, side, bytes.data(), page_float, head_dim, decoded.data());
      for (size_t i = 0; i < count; ++i) {
        error += std::pow(double{decoded[i]} - double{x[i]}, 2);
        squares += double{x[i]} * double{x[i]};
      }
    }
  }
  return error / squares;
}

}  // namespace nibble
