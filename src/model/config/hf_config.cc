#include "model/config/hf_config.h"

#include <cmath>
#include <string>
#include <utility>

#include "model/config/hf_reader.h"
#include "model/config/validate.h"

namespace nibble {

Result<int> HfReader::IntOr(std::string_view key, int fallback) const {
  NIBBLE_TRY(const int64_t value, object_.GetIntOr(key, fallback));
  if (value >= 0 && value <= ConfigLimits::kContext) return static_cast<int>(value);
  return BadInput("'{}': expected 0 to {}, found {}", key, static_cast<int>(ConfigLimits::kContext),
                  value);
}

Result<double> HfReader::DoubleOr(std::string_view key, double fallback) const {
  NIBBLE_TRY(const double value, object_.GetDoubleOr(key, fallback));
  if (std::isfinite(value)) return value;
  return BadInput("'{}' is not finite", key);
}

namespace {

Result<GateKind> GateFromName(std::string_view name) {
  if (name == "silu" || name == "swish") return GateKind::kSilu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new" || name == "gelu_fast") {
    return GateKind::kGeluTanh;
  }
  if (name == "gelu" || name == "gelu_python") return GateKind::kGeluErf;
  return BadInput(
      "activation '{}' is not supported; supported: silu, gelu, gelu_new, "
      "gelu_pytorch_tanh",
      name.substr(0, 64));
}

Status ReadSizes(const HfReader& reader, const HfDefaults& defaults, ModelConfig& config) {
  const bool gpt2 = config.learned_positions;
  const auto key = [gpt2](std::string_view usual, std::string_view gpt2_name) {
    return gpt2 ? gpt2_name : usual;
  };
  NIBBLE_TRY(config.vocabulary, reader.IntOr("vocab_size", defaults.vocabulary));
  NIBBLE_TRY(config.width, reader.IntOr(key("hidden_size", "n_embd"), defaults.width));
  NIBBLE_TRY(const int layers, reader.IntOr(key("num_hidden_layers", "n_layer"), defaults.layers));
  if (layers < 1 || layers > ConfigLimits::kLayers) {
    return BadInput("'{}': expected 1 to {}, found {}", key("num_hidden_layers", "n_layer"),
                    static_cast<int>(ConfigLimits::kLayers), layers);
  }
  config.layers.resize(static_cast<size_t>(layers));
  NIBBLE_TRY(config.heads, reader.IntOr(key("num_attention_heads", "n_head"), defaults.heads));
  if (config.heads < 1) {
    return BadInput("'{}': expected a positive number, found {}",
                    key("num_attention_heads", "n_head"), config.heads);
  }
  config.kv_heads = config.heads;
  if (!gpt2) {
    const int kv_heads = defaults.kv_heads > 0 ? defaults.kv_heads : config.heads;
    NIBBLE_TRY(config.kv_heads, reader.IntOr("num_key_value_heads", kv_heads, config.heads));
    NIBBLE_TRY(config.head_dim, reader.IntOr("head_dim", defaults.head_dim));
  }
  if (config.head_dim == 0) {
    if (config.width < 1 || config.width % config.heads != 0) {
      return BadInput("'{}' ({}) is not a multiple of '{}' ({})", key("hidden_size", "n_embd"),
                      config.width, key("num_attention_heads", "n_head"), config.heads);
    }
    config.head_dim = config.width / config.heads;
  }
  const int64_t ffn = gpt2 ? int64_t{4} * config.width : defaults.ffn_width;
  if (ffn > ConfigLimits::kContext) return BadInput("'n_embd' is {}", config.width);
  NIBBLE_TRY(config.ffn_width,
             reader.IntOr(key("intermediate_size", "n_inner"), static_cast<int>(ffn)));
  NIBBLE_TRY(config.context_length,
             reader.IntOr(key("max_position_embeddings", "n_positions"), defaults.context));
  NIBBLE_TRY(const double eps,
             reader.DoubleOr(key("rms_norm_eps", "layer_norm_epsilon"), defaults.norm_eps));
  config.norm_eps = static_cast<float>(eps);
  return {};
}

// layer_types: which layers slide; empty when the config has none.
Result<std::vector<bool>> ReadLayerTypes(const HfReader& reader, size_t layers) {
  std::vector<bool> sliding;
  const std::optional<JsonValue> types = reader.Find("layer_types");
  if (!types || types->is_null()) return sliding;
  auto array = types->AsArray();
  if (!array) return Within("'layer_types'", array.error());
  if (array->size() != layers) {
    return BadInput("'layer_types': expected {} values, one per layer, found {}", layers,
                    array->size());
  }
  for (const JsonValue element : *array) {
    auto name = element.AsString();
    if (!name) return Within("'layer_types'", name.error());
    if (*name != "sliding_attention" && *name != "full_attention") {
      return BadInput(
          "'layer_types': '{}' is not supported; supported: full_attention, "
          "sliding_attention",
          name->substr(0, 64));
    }
    sliding.push_back(*name == "sliding_attention");
  }
  return sliding;
}

// smollm3: 1 where a layer rotates.
Result<std::vector<bool>> ReadNopeLayers(const HfReader& reader, int usual, size_t layers) {
  std::vector<bool> rotates(layers, true);
  const std::optional<JsonValue> list = reader.Find("no_rope_layers");
  if (list && !list->is_null()) {
    auto array = list->AsArray();
    if (!array) return Within("'no_rope_layers'", array.error());
    if (array->size() < layers) {
      return BadInput("'no_rope_layers': expected {} values, one per layer, found {}", layers,
                      array->size());
    }
    size_t i = 0;
    for (const JsonValue element : *array) {
      if (i == layers) break;
      if (element.is_bool()) {
        rotates[i++] = *element.AsBool();
        continue;
      }
      auto flag = element.AsInt();
      if (!flag) return Within("'no_rope_layers'", flag.error());
      rotates[i++] = *flag != 0;
    }
    return rotates;
  }
  NIBBLE_TRY(const int interval, reader.IntOr("no_rope_layer_interval", usual));
  if (interval < 1) return BadInput("'no_rope_layer_interval': expected 1 or more, found 0");
  for (size_t i = 0; i < layers; ++i) rotates[i] = (i + 1) % static_cast<size_t>(interval) != 0;
  return rotates;
}

// The layers that see a window, by layer_types or by the architecture's own rule.
Result<std::vector<bool>> ReadSliding(const HfReader& reader, const HfDefaults& defaults,
                                      const std::vector<bool>& rotates) {
  const size_t layers = rotates.size();
  const WindowRule rule = defaults.window_rule;
  if (rule == WindowRule::kNone || rule == WindowRule::kEveryLayer) {
    return std::vector<bool>(layers, rule == WindowRule::kEveryLayer);
  }
  if (rule == WindowRule::kUpper || rule == WindowRule::kNopeLayers) {
    NIBBLE_TRY(const bool used, reader.BoolOr("use_sliding_window", false));
    if (!used) return std::vector<bool>(layers, false);
  }
  NIBBLE_TRY(std::vector<bool> sliding, ReadLayerTypes(reader, layers));
  if (!sliding.empty()) return sliding;
  sliding.resize(layers);
  int from = 0;
  int pattern = 0;
  if (rule == WindowRule::kUpper) {
    NIBBLE_TRY(from, reader.IntOr("max_window_layers", 28));
  } else if (rule == WindowRule::kPattern) {
    // 5.x writes the old key with an underscore in front.
    NIBBLE_TRY(const int written, reader.IntOr("_sliding_window_pattern", defaults.window_pattern));
    NIBBLE_TRY(pattern, reader.IntOr("sliding_window_pattern", written));
    if (pattern < 1) return BadInput("'sliding_window_pattern': expected 1 or more, found 0");
  }
  for (size_t i = 0; i < layers; ++i) {
    if (rule == WindowRule::kUpper) {
      sliding[i] = i >= static_cast<size_t>(from);
    } else if (rule == WindowRule::kPattern) {
      sliding[i] = (i + 1) % static_cast<size_t>(pattern) != 0;
    } else {
      sliding[i] = !rotates[i];
    }
  }
  return sliding;
}

Status ReadLayers(const HfReader& reader, const HfModelType& type, ModelConfig& config) {
  std::vector<bool> rotates(config.layers.size(), !config.learned_positions);
  if (type.defaults.nope_interval > 0) {
    NIBBLE_TRY(rotates, ReadNopeLayers(reader, type.defaults.nope_interval, config.layers.size()));
  }
  NIBBLE_TRY(const std::vector<bool> sliding, ReadSliding(reader, type.defaults, rotates));
  NIBBLE_TRY(const int window, reader.IntOr("sliding_window", type.defaults.window, 0));
  for (size_t i = 0; i < sliding.size(); ++i) {
    if (sliding[i]) config.layers[i].window = window;
  }
  if (config.learned_positions) return {};
  NIBBLE_TRY(HfRopes ropes, ReadHfRopes(reader, type, config.head_dim, config.context_length));
  config.ropes.push_back(std::move(ropes.full));
  const bool two = ropes.sliding.has_value();
  if (two) config.ropes.push_back(*std::move(ropes.sliding));
  for (size_t i = 0; i < sliding.size(); ++i) {
    if (rotates[i]) config.layers[i].rope = two && sliding[i] ? 1 : 0;
  }
  return {};
}

Status ReadAttention(const HfReader& reader, const HfModelType& type, ModelConfig& config) {
  const HfDefaults& defaults = type.defaults;
  double scalar = config.head_dim;
  if (defaults.query_scalar > 0) {
    NIBBLE_TRY(scalar, reader.DoubleOr("query_pre_attn_scalar", defaults.query_scalar));
    NIBBLE_TRY(const double attention_cap,
               reader.DoubleOr("attn_logit_softcapping", defaults.attention_cap, 0));
    NIBBLE_TRY(const double final_cap,
               reader.DoubleOr("final_logit_softcapping", defaults.final_cap, 0));
    NIBBLE_TRY(const bool both_ways, reader.BoolOr("use_bidirectional_attention", false));
    if (both_ways) return BadInput("'use_bidirectional_attention' is true: not supported");
    config.attention_soft_cap = static_cast<float>(attention_cap);
    config.final_soft_cap = static_cast<float>(final_cap);
  }
  if (!(scalar > 0)) {
    return BadInput("'query_pre_attn_scalar': expected a positive number, found {}", scalar);
  }
  config.attention_scale = static_cast<float>(1 / std::sqrt(scalar));
  if (!config.learned_positions) return {};
  NIBBLE_TRY(const bool scaled, reader.BoolOr("scale_attn_weights", true));
  NIBBLE_TRY(const bool by_layer, reader.BoolOr("scale_attn_by_inverse_layer_idx", false));
  if (!scaled) config.attention_scale = 1;
  for (size_t i = 0; by_layer && i < config.layers.size(); ++i) {
    config.layers[i].attention_scale = config.attention_scale / static_cast<float>(i + 1);
  }
  return {};
}

Result<std::optional<HfQuantization>> ReadQuantization(JsonValue root) {
  const std::optional<JsonValue> config = root.Find("quantization_config");
  if (!config || !config->is_object()) return std::nullopt;
  auto quantization = ReadHfQuantization(*config);
  if (!quantization) return Within("'quantization_config'", quantization.error());
  return *std::move(quantization);
}

// Keys by which a config of a known model_type would still describe another kind of layer.
Status RefuseExperts(const HfReader& reader) {
  for (const std::string_view key : {"num_local_experts", "num_experts", "n_routed_experts",
                                     "moe_num_experts", "num_moe_experts"}) {
    NIBBLE_TRY(const int experts, reader.IntOr(key, 0));
    if (experts > 0) {
      return BadInput("'{}' is {}: mixtures of experts are not supported", key, experts);
    }
  }
  NIBBLE_TRY(const int latent, reader.IntOr("kv_lora_rank", 0));
  if (latent > 0) {
    return BadInput("'kv_lora_rank' is {}: latent attention is not supported", latent);
  }
  return {};
}

// The model_type, or what the class name says when it is missing.
Result<const HfModelType*> FindType(const HfReader& reader) {
  NIBBLE_TRY(const std::string_view model_type, reader.StringOr("model_type", ""));
  if (!model_type.empty()) return FindHfModelType(model_type);
  const std::optional<JsonValue> classes = reader.Find("architectures");
  if (classes && classes->is_array()) {
    NIBBLE_TRY(const JsonArray names, classes->AsArray());
    for (const JsonValue element : names) {
      if (!element.is_string()) continue;
      for (const HfModelType& type : HfModelTypes()) {
        if (!type.class_name.empty() && *element.AsString() == type.class_name) return &type;
      }
    }
  }
  return BadInput("'model_type' is missing");
}

}  // namespace

Result<HfConfig> ReadHfConfig(JsonValue root) {
  if (!root.is_object()) {
    return BadInput("expected an object, found {}", JsonKindName(root.kind()));
  }
  HfReader reader(root);
  NIBBLE_TRY(const HfModelType* type, FindType(reader));
  // Text and image models keep the language model's part in an object of its own.
  const std::optional<JsonValue> text = root.Find("text_config");
  if (type->defaults.text_config && text && text->is_object()) reader = HfReader(*text);
  NIBBLE_RETURN_IF_ERROR(RefuseExperts(reader));

  NIBBLE_TRY(const Architecture* architecture, FindArchitecture(type->architecture));
  HfConfig result;
  NIBBLE_TRY(result.quantization, ReadQuantization(root));
  result.architecture = architecture;
  ModelConfig& config = result.config;
  config.architecture = architecture->name;
  config.norm = architecture->norm;
  config.norm_plus_one = architecture->hf_norm_plus_one;
  config.ffn = architecture->ffn;
  config.qk_norm = architecture->qk_norm;
  config.post_norms = architecture->post_norms;
  config.learned_positions = architecture->learned_positions;

  NIBBLE_RETURN_IF_ERROR(ReadSizes(reader, type->defaults, config));
  NIBBLE_RETURN_IF_ERROR(ReadLayers(reader, *type, config));
  NIBBLE_RETURN_IF_ERROR(ReadAttention(reader, *type, config));
  const bool silu = architecture->gate == GateKind::kSilu;
  NIBBLE_TRY(const std::string_view gate,
             reader.StringOr(architecture->hf_gate_key, silu ? "silu" : "gelu_pytorch_tanh"));
  NIBBLE_TRY(config.gate, GateFromName(gate));
  if (architecture->scaled_embedding) {
    config.embedding_scale = std::sqrt(static_cast<float>(config.width));
  }
  NIBBLE_TRY(config.tied_embeddings, reader.BoolOr("tie_word_embeddings", type->defaults.tied));
  const std::optional<JsonValue> tie = reader.Find("tie_word_embeddings");
  result.tie_given = tie && !tie->is_null();
  NIBBLE_RETURN_IF_ERROR(ValidateConfig(config));
  return result;
}

}  // namespace nibble
