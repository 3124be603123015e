#include <algorithm>
#include <cmath>
#include <string>

#include "container/gguf_writer.h"
#include "model/config/gguf_config.h"

namespace nibble {
namespace {

void WriteRope(const RopeConfig& rope, const std::string& prefix, GgufWriter& writer) {
  writer.SetFloat32(prefix + "rope.freq_base", static_cast<float>(rope.theta));
  writer.SetUint32(prefix + "rope.dimension_count", static_cast<uint32_t>(rope.dims));
  if (rope.scaling != RopeScaling::kLinear && rope.scaling != RopeScaling::kYarn) return;
  const bool yarn = rope.scaling == RopeScaling::kYarn;
  writer.SetString(prefix + "rope.scaling.type", yarn ? "yarn" : "linear");
  writer.SetFloat32(prefix + "rope.scaling.factor", static_cast<float>(rope.factor));
  writer.SetUint32(prefix + "rope.scaling.original_context_length",
                   static_cast<uint32_t>(rope.original_context));
}

}  // namespace

void WriteGgufConfig(const ModelConfig& config, GgufWriter& writer) {
  const std::string prefix = config.architecture + ".";
  const auto set = [&](const char* key, int value) {
    writer.SetUint32(prefix + key, static_cast<uint32_t>(value));
  };
  const auto set_float = [&](const char* key, float value) {
    writer.SetFloat32(prefix + key, value);
  };
  writer.SetString("general.architecture", config.architecture);
  set("block_count", static_cast<int>(config.layers.size()));
  set("context_length", config.context_length);
  set("embedding_length", config.width);
  set("feed_forward_length", config.ffn_width);
  set("attention.head_count", config.heads);
  set("attention.head_count_kv", config.kv_heads);
  set("vocab_size", config.vocabulary);
  if (config.head_dim * config.heads != config.width) {
    set("attention.key_length", config.head_dim);
    set("attention.value_length", config.head_dim);
  }
  set_float(config.norm == NormKind::kLayer ? "attention.layer_norm_epsilon"
                                            : "attention.layer_norm_rms_epsilon",
            config.norm_eps);
  int window = 0;
  for (const LayerConfig& layer : config.layers) window = std::max(window, layer.window);
  if (window > 0) set("attention.sliding_window", window);
  if (config.attention_soft_cap > 0) {
    set_float("attn_logit_softcapping", config.attention_soft_cap);
  }
  if (config.final_soft_cap > 0) set_float("final_logit_softcapping", config.final_soft_cap);
  set_float("attention.scale", config.attention_scale);
  if (!config.ropes.empty()) WriteRope(config.ropes[0], prefix, writer);
}

}  // namespace nibble
