#include "model/config/validate.h"

#include <cmath>
#include <string_view>

namespace nibble {
namespace {

Status InRange(std::string_view what, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return {};
  return BadInput("{}: expected {} to {}, found {}", what, low, high, value);
}

Status Positive(std::string_view what, double value) {
  if (std::isfinite(value) && value > 0) return {};
  return BadInput("{}: expected a positive number, found {}", what, value);
}

Status ValidateFactors(std::string_view what, const std::vector<double>& factors, int pairs) {
  if (!factors.empty() && factors.size() != static_cast<size_t>(pairs)) {
    return BadInput("{}: expected {} factors (half of the rotated channels), found {}", what, pairs,
                    factors.size());
  }
  for (const double factor : factors) NIBBLE_RETURN_IF_ERROR(Positive(what, factor));
  return {};
}

Status ValidateRope(const RopeConfig& rope, int head_dim) {
  if (rope.dims % 2 != 0 || rope.dims < 0 || rope.dims > head_dim) {
    return BadInput("rotated channels: expected an even number up to the head size {}, found {}",
                    head_dim, rope.dims);
  }
  NIBBLE_RETURN_IF_ERROR(Positive("rope theta", rope.theta));
  NIBBLE_RETURN_IF_ERROR(Positive("rope scaling factor", rope.factor));
  const int pairs = rope.dims / 2;
  NIBBLE_RETURN_IF_ERROR(ValidateFactors("rope short_factor", rope.short_factor, pairs));
  NIBBLE_RETURN_IF_ERROR(ValidateFactors("rope long_factor", rope.long_factor, pairs));
  NIBBLE_RETURN_IF_ERROR(ValidateFactors("rope frequencies", rope.frequency_factors, pairs));
  const bool long_rope = rope.scaling == RopeScaling::kLongRope;
  if (long_rope && (rope.short_factor.empty() || rope.long_factor.empty()) && pairs > 0) {
    return BadInput("rope scaling longrope: short and long factors are missing");
  }
  if (long_rope || rope.scaling == RopeScaling::kYarn || rope.scaling == RopeScaling::kLlama3) {
    // ln(original) divides (longrope).
    NIBBLE_RETURN_IF_ERROR(
        InRange("rope original context", rope.original_context, 2, ConfigLimits::kContext));
  }
  if (rope.scaling == RopeScaling::kYarn) {
    NIBBLE_RETURN_IF_ERROR(Positive("rope beta_fast", rope.beta_fast));
    NIBBLE_RETURN_IF_ERROR(Positive("rope beta_slow", rope.beta_slow));
    if (rope.theta <= 1) return BadInput("rope theta: expected more than 1, found {}", rope.theta);
  }
  if (rope.scaling == RopeScaling::kLlama3) {
    NIBBLE_RETURN_IF_ERROR(Positive("rope low_freq_factor", rope.low_freq_factor));
    NIBBLE_RETURN_IF_ERROR(Positive("rope high_freq_factor", rope.high_freq_factor));
    if (rope.high_freq_factor <= rope.low_freq_factor) {
      return BadInput("rope high_freq_factor {} must be larger than low_freq_factor {}",
                      rope.high_freq_factor, rope.low_freq_factor);
    }
  }
  NIBBLE_RETURN_IF_ERROR(Positive("rope attention factor", rope.attention_multiplier));
  if (!std::isfinite(rope.attention_factor) || rope.attention_factor < 0) {
    return BadInput("rope attention factor: expected a positive number, found {}",
                    rope.attention_factor);
  }
  return {};
}

}  // namespace

Status ValidateConfig(const ModelConfig& config) {
  using L = ConfigLimits;
  const auto layers = static_cast<int64_t>(config.layers.size());
  NIBBLE_RETURN_IF_ERROR(InRange("layers", layers, 1, L::kLayers));
  NIBBLE_RETURN_IF_ERROR(InRange("vocabulary size", config.vocabulary, 1, L::kVocabulary));
  NIBBLE_RETURN_IF_ERROR(InRange("hidden size", config.width, 1, L::kWidth));
  NIBBLE_RETURN_IF_ERROR(InRange("attention heads", config.heads, 1, L::kHeads));
  NIBBLE_RETURN_IF_ERROR(InRange("key/value heads", config.kv_heads, 1, L::kHeads));
  NIBBLE_RETURN_IF_ERROR(InRange("head size", config.head_dim, 1, L::kHeadDim));
  NIBBLE_RETURN_IF_ERROR(InRange("feed-forward size", config.ffn_width, 1, L::kFfnWidth));
  NIBBLE_RETURN_IF_ERROR(InRange("context length", config.context_length, 1, L::kContext));
  if (config.heads % config.kv_heads != 0) {
    return BadInput("attention heads ({}) are not a multiple of key/value heads ({})", config.heads,
                    config.kv_heads);
  }
  if (!std::isfinite(config.norm_eps) || config.norm_eps < 0 || config.norm_eps > 1) {
    return BadInput("norm epsilon: expected 0 to 1, found {}", config.norm_eps);
  }
  NIBBLE_RETURN_IF_ERROR(Positive("attention scale", config.attention_scale));
  for (const float cap : {config.attention_soft_cap, config.final_soft_cap}) {
    if (!std::isfinite(cap) || cap < 0) {
      return BadInput("soft cap: expected a positive number, found {}", cap);
    }
  }
  for (const LayerConfig& layer : config.layers) {
    NIBBLE_RETURN_IF_ERROR(InRange("sliding window", layer.window, 0, L::kContext));
  }
  for (const RopeConfig& rope : config.ropes) {
    NIBBLE_RETURN_IF_ERROR(ValidateRope(rope, config.head_dim));
  }
  return {};
}

}  // namespace nibble
