#include "quantize/same_config.h"

#include <cmath>
#include <string_view>

#include "model/rope_frequencies.h"

namespace nibble {
namespace {

template <class T>
Status Equal(std::string_view what, T a, T b) {
  if (a == b) return {};
  return BadInput("{}: {} and {}", what, a, b);
}

Status Near(std::string_view what, double a, double b) {
  if (std::fabs(a - b) <= 1e-6 * std::max(std::fabs(a), std::fabs(b))) return {};
  return BadInput("{}: {} and {}", what, a, b);
}

Status CheckRope(const RopeConfig& a, const RopeConfig& b, int max_context) {
  const RopeFrequencies x = ComputeRopeFrequencies(a, max_context);
  const RopeFrequencies y = ComputeRopeFrequencies(b, max_context);
  NIBBLE_RETURN_IF_ERROR(Equal("rotated pairs", x.inv_freq.size(), y.inv_freq.size()));
  NIBBLE_RETURN_IF_ERROR(Near("factor of rotations", x.factor, y.factor));
  for (size_t i = 0; i < x.inv_freq.size(); ++i) {
    NIBBLE_RETURN_IF_ERROR(Near("a frequency of rotation", x.inv_freq[i], y.inv_freq[i]));
  }
  return {};
}

Status CheckLayer(const ModelConfig& a, const ModelConfig& b, size_t i) {
  const LayerConfig& x = a.layers[i];
  const LayerConfig& y = b.layers[i];
  NIBBLE_RETURN_IF_ERROR(Equal("window of a layer", x.window, y.window));
  NIBBLE_RETURN_IF_ERROR(Equal("rotation of a layer", x.rope >= 0, y.rope >= 0));
  const auto scale = [](const ModelConfig& config, const LayerConfig& layer) {
    return layer.attention_scale > 0 ? layer.attention_scale : config.attention_scale;
  };
  NIBBLE_RETURN_IF_ERROR(Near("attention scale", scale(a, x), scale(b, y)));
  if (x.rope < 0) return {};
  const RopeConfig& p = a.ropes[static_cast<size_t>(x.rope)];
  const RopeConfig& q = b.ropes[static_cast<size_t>(y.rope)];
  NIBBLE_RETURN_IF_ERROR(CheckRope(p, q, a.context_length));
  if (p.scaling != RopeScaling::kLongRope) return {};
  return CheckRope(p, q, p.original_context);  // the short factors
}

}  // namespace

Status CheckSameConfig(const ModelConfig& a, const ModelConfig& b) {
  NIBBLE_RETURN_IF_ERROR(Equal<std::string_view>("architecture", a.architecture, b.architecture));
  NIBBLE_RETURN_IF_ERROR(Equal("vocabulary", a.vocabulary, b.vocabulary));
  NIBBLE_RETURN_IF_ERROR(Equal("width", a.width, b.width));
  NIBBLE_RETURN_IF_ERROR(Equal("heads", a.heads, b.heads));
  NIBBLE_RETURN_IF_ERROR(Equal("KV heads", a.kv_heads, b.kv_heads));
  NIBBLE_RETURN_IF_ERROR(Equal("head_dim", a.head_dim, b.head_dim));
  NIBBLE_RETURN_IF_ERROR(Equal("FFN width", a.ffn_width, b.ffn_width));
  NIBBLE_RETURN_IF_ERROR(Equal("context length", a.context_length, b.context_length));
  NIBBLE_RETURN_IF_ERROR(Equal("layers", a.layers.size(), b.layers.size()));
  NIBBLE_RETURN_IF_ERROR(Equal("norm", static_cast<int>(a.norm), static_cast<int>(b.norm)));
  NIBBLE_RETURN_IF_ERROR(Equal("FFN", static_cast<int>(a.ffn), static_cast<int>(b.ffn)));
  NIBBLE_RETURN_IF_ERROR(Equal("gate", static_cast<int>(a.gate), static_cast<int>(b.gate)));
  NIBBLE_RETURN_IF_ERROR(Equal("norms of Q and K", a.qk_norm, b.qk_norm));
  NIBBLE_RETURN_IF_ERROR(Equal("norms behind blocks", a.post_norms, b.post_norms));
  NIBBLE_RETURN_IF_ERROR(Equal("learned positions", a.learned_positions, b.learned_positions));
  NIBBLE_RETURN_IF_ERROR(Near("norm epsilon", a.norm_eps, b.norm_eps));
  NIBBLE_RETURN_IF_ERROR(Near("embedding scale", a.embedding_scale, b.embedding_scale));
  NIBBLE_RETURN_IF_ERROR(Near("attention cap", a.attention_soft_cap, b.attention_soft_cap));
  NIBBLE_RETURN_IF_ERROR(Near("cap of logits", a.final_soft_cap, b.final_soft_cap));
  for (size_t i = 0; i < a.layers.size(); ++i) {
    NIBBLE_RETURN_IF_ERROR(CheckLayer(a, b, i));
  }
  return {};
}

}  // namespace nibble
