#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "container/gguf_writer.h"
#include "model/config/gguf_config.h"

namespace nibble {
namespace {

void WriteYarn(const RopeConfig& rope, const std::string& prefix, GgufWriter& writer) {
  const std::string scaling = prefix + "rope.scaling.";
  if (rope.beta_fast != 32 || rope.beta_slow != 1) {
    writer.SetFloat32(scaling + "yarn_beta_fast", static_cast<float>(rope.beta_fast));
    writer.SetFloat32(scaling + "yarn_beta_slow", static_cast<float>(rope.beta_slow));
  }
  if (rope.mscale_all_dim != 0) {
    writer.SetFloat32(scaling + "yarn_log_multiplier", static_cast<float>(rope.mscale_all_dim));
  }
  double multiplier = rope.attention_multiplier;
  if (rope.attention_factor != 0) {
    multiplier *= rope.attention_factor / (0.1 * std::log(rope.factor) + 1);
  }
  if (multiplier != 1) {
    writer.SetFloat32(scaling + "attn_factor", static_cast<float>(multiplier));
  }
}

void WriteRope(const RopeConfig& rope, const std::string& prefix, GgufWriter& writer) {
  writer.SetFloat32(prefix + "rope.freq_base", static_cast<float>(rope.theta));
  writer.SetUint32(prefix + "rope.dimension_count", static_cast<uint32_t>(rope.dims));
  const bool yarn = rope.scaling == RopeScaling::kYarn;
  const bool longrope = rope.scaling == RopeScaling::kLongRope;
  if (!yarn && !longrope && rope.scaling != RopeScaling::kLinear) return;
  if (longrope) {
    // llama.cpp scales by this key alone.
    double factor = rope.attention_factor;
    if (factor == 0) {
      factor = rope.factor <= 1
                   ? 1
                   : std::sqrt(1 + std::log(rope.factor) /
                                       std::log(static_cast<double>(rope.original_context)));
    }
    writer.SetFloat32(prefix + "rope.scaling.attn_factor", static_cast<float>(factor));
  } else {
    writer.SetString(prefix + "rope.scaling.type", yarn ? "yarn" : "linear");
    writer.SetFloat32(prefix + "rope.scaling.factor", static_cast<float>(rope.factor));
  }
  writer.SetUint32(prefix + "rope.scaling.original_context_length",
                   static_cast<uint32_t>(rope.original_context));
  if (yarn) WriteYarn(rope, prefix, writer);
}

// Which layers see the window, where the architecture does not say it already.
void WriteWindows(const ModelConfig& config, const std::string& prefix, GgufWriter& writer) {
  int window = 0;
  for (const LayerConfig& layer : config.layers) window = std::max(window, layer.window);
  const auto architecture = FindArchitecture(config.architecture);
  const int pattern = architecture ? (*architecture)->gguf_window_pattern : -1;
  if (window > 0)
    writer.SetUint32(prefix + "attention.sliding_window", static_cast<uint32_t>(window));
  if (pattern < 0) return;
  std::vector<bool> sliding;
  bool as_expected = true;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    sliding.push_back(config.layers[i].window > 0);
    const bool expected = pattern == 0 || (i + 1) % static_cast<size_t>(pattern) != 0;
    as_expected = as_expected && sliding.back() == expected;
  }
  if (!as_expected) writer.SetBools(prefix + "attention.sliding_window_pattern", sliding);
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
  WriteWindows(config, prefix, writer);
  if (config.attention_soft_cap > 0) {
    set_float("attn_logit_softcapping", config.attention_soft_cap);
  }
  if (config.final_soft_cap > 0) set_float("final_logit_softcapping", config.final_soft_cap);
  set_float("attention.scale", config.attention_scale);
  if (config.ropes.empty()) return;
  WriteRope(config.ropes[0], prefix, writer);
  if (config.ropes.size() > 1) {
    writer.SetFloat32(prefix + "rope.freq_base_swa", static_cast<float>(config.ropes[1].theta));
  }
}

}  // namespace nibble
