#include "quantize/hf_config_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <utility>
#include <vector>

#include "model/config/architecture.h"
#include "model/config/model_file.h"
#include "tokenizer/tokenizer.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;

// The shortest decimal that names this float: 1e-05, not 9.999999747378752e-06.
double Short(double value) {
  const std::string text = fmt::format("{}", static_cast<float>(value));
  double read = value;
  std::from_chars(text.data(), text.data() + text.size(), read);
  return read;
}

// 255.99998 was an integer before a root went through f32.
Json NearInteger(double value) {
  const double whole = std::round(value);
  if (std::fabs(value - whole) < 1e-5 * value) return static_cast<int64_t>(whole);
  return value;
}

std::string_view GateName(GateKind gate, bool gpt2) {
  switch (gate) {
    case GateKind::kSilu:
      return "silu";
    case GateKind::kGeluTanh:
      return gpt2 ? "gelu_new" : "gelu_pytorch_tanh";
    case GateKind::kGeluErf:
      return "gelu";
  }
  return "";
}

int Window(const ModelConfig& config) {
  int window = 0;
  for (const LayerConfig& layer : config.layers) window = std::max(window, layer.window);
  return window;
}

bool HasBias(const ModelFile& model, Linear linear) {
  return std::ranges::any_of(model.tensors().layers, [&](const LayerTensors& layer) {
    return static_cast<bool>(layer[linear].bias);
  });
}

// GGUF's llama is transformers' mistral where all layers see a window.
Result<const HfModelType*> TypeOf(const ModelFile& model) {
  const ModelConfig& config = model.config();
  std::string_view name = config.architecture;
  if (name == "llama" && Window(config) > 0) {
    if (HasBias(model, Linear::kQuery)) {
      return BadInput("a llama with windows and biases has no model_type in transformers");
    }
    name = "mistral";
  }
  if (name == "gemma3") name = "gemma3_text";
  return FindHfModelType(name);
}

// GGUF has the divisors of Llama 3.1's rule alone: 1 for short waves, `factor` for long ones, and
// in between 1 / d = (1 − s) / factor + s with s = (original / wavelength − low) / (high − low), a
// line that two of them fix. `low` is 1, as everywhere: doubling all three changes nothing. What
// does not lie on the line is found by the comparison behind this.
Result<Json> Llama3Scaling(const RopeConfig& rope) {
  const std::vector<double>& divisors = rope.frequency_factors;
  const double factor = *std::ranges::max_element(divisors);
  std::vector<std::pair<double, double>> line;  // 1 / wavelength, s
  for (size_t i = 0; i < divisors.size(); ++i) {
    if (divisors[i] <= 1.0001 || divisors[i] >= 0.9999 * factor) continue;
    const double per_wave =
        std::pow(rope.theta, -2.0 * static_cast<double>(i) / rope.dims) / (2 * std::numbers::pi);
    line.emplace_back(per_wave, (1 / divisors[i] - 1 / factor) / (1 - 1 / factor));
  }
  double high = 4;
  double original = 8192;  // both Llama 3.1's own, where nothing says otherwise
  if (line.size() == 1) original = std::round((3 * line[0].second + 1) / line[0].first);
  if (line.size() > 1) {
    const auto& [x0, s0] = line.front();
    const auto& [x1, s1] = line.back();
    const double slope = (s0 - s1) / (x0 - x1);
    const double offset = slope * x0 - s0;  // low / (high − low)
    high = 1 + 1 / offset;
    original = std::round(slope / offset);
    if (std::fabs(high - std::round(high)) < 1e-3) high = std::round(high);
  }
  if (!(factor > 1 && high > 1 && original >= 1 && original < 1e9)) {
    return BadInput("rope_freqs: factors of no rule that config.json has");
  }
  return Json{{"rope_type", "llama3"},
              {"factor", Short(factor)},
              {"low_freq_factor", 1.0},
              {"high_freq_factor", Short(high)},
              {"original_max_position_embeddings", static_cast<int64_t>(original)}};
}

Json YarnScaling(const RopeConfig& rope) {
  Json scaling = {{"rope_type", "yarn"},
                  {"factor", Short(rope.factor)},
                  {"original_max_position_embeddings", rope.original_context},
                  {"beta_fast", Short(rope.beta_fast)},
                  {"beta_slow", Short(rope.beta_slow)}};
  if (rope.mscale_all_dim != 0) {
    scaling["mscale"] = Short(rope.mscale);
    scaling["mscale_all_dim"] = Short(rope.mscale_all_dim);
  }
  if (rope.attention_multiplier != 1) {
    scaling["attention_factor"] =
        Short(rope.attention_multiplier * (0.1 * std::log(rope.factor) + 1));
  }
  return scaling;
}

Json LongRopeScaling(const RopeConfig& rope, int context) {
  const auto shortened = [](const std::vector<double>& factors) {
    Json list = Json::array();
    for (const double factor : factors) list.push_back(Short(factor));
    return list;
  };
  Json scaling = {{"type", "longrope"},
                  {"short_factor", shortened(rope.short_factor)},
                  {"long_factor", shortened(rope.long_factor)}};
  const double original = rope.original_context;
  const double usual = std::sqrt(1 + std::log(context / original) / std::log(original));
  // Phi-3's own files have these three keys and nothing else.
  if (rope.attention_factor > 0 && std::fabs(rope.attention_factor - usual) > 1e-5 * usual) {
    scaling["attention_factor"] = Short(rope.attention_factor);
  }
  return scaling;
}

Status AddRopes(const ModelConfig& config, const HfDefaults& defaults, Json& json) {
  if (config.ropes.empty()) return {};
  const RopeConfig& rope = config.ropes.front();
  json["rope_theta"] = Short(rope.theta);
  if (config.ropes.size() > 1) json["rope_local_base_freq"] = Short(config.ropes[1].theta);
  if (defaults.partial_rotary) {
    json["partial_rotary_factor"] = static_cast<double>(rope.dims) / config.head_dim;
  }
  if (defaults.original_context > 0) {
    json["original_max_position_embeddings"] =
        rope.original_context > 0 ? rope.original_context : config.context_length;
  }
  Json& scaling = json["rope_scaling"];
  if (rope.scaling == RopeScaling::kNone && !rope.frequency_factors.empty()) {
    NIBBLE_TRY(scaling, Llama3Scaling(rope));
    return {};
  }
  switch (rope.scaling) {
    case RopeScaling::kNone:
      break;
    case RopeScaling::kLinear:
      scaling = {{"rope_type", "linear"}, {"factor", Short(rope.factor)}};
      break;
    case RopeScaling::kYarn:
      scaling = YarnScaling(rope);
      break;
    case RopeScaling::kLongRope:
      scaling = LongRopeScaling(rope, config.context_length);
      break;
    case RopeScaling::kLlama3:
      return BadInput("a GGUF file names no llama3 scaling");
  }
  return {};
}

void AddWindows(const ModelConfig& config, const HfDefaults& defaults, Json& json) {
  const int window = Window(config);
  if (defaults.window_rule == WindowRule::kNone) return;
  json["sliding_window"] = window > 0 ? Json(window) : Json();
  if (defaults.window_rule == WindowRule::kEveryLayer) return;
  if (defaults.window_rule != WindowRule::kPattern) json["use_sliding_window"] = window > 0;
  Json& types = json["layer_types"] = Json::array();
  for (const LayerConfig& layer : config.layers) {
    types.push_back(layer.window > 0 ? "sliding_attention" : "full_attention");
  }
}

void AddSizes(const ModelConfig& config, Json& json) {
  json["vocab_size"] = config.vocabulary;
  if (config.learned_positions) {
    json["n_embd"] = config.width;
    json["n_layer"] = config.layers.size();
    json["n_head"] = config.heads;
    json["n_positions"] = config.context_length;
    json["n_inner"] = config.ffn_width;
    json["layer_norm_epsilon"] = Short(config.norm_eps);
    return;
  }
  json["hidden_size"] = config.width;
  json["intermediate_size"] = config.ffn_width;
  json["num_hidden_layers"] = config.layers.size();
  json["num_attention_heads"] = config.heads;
  json["num_key_value_heads"] = config.kv_heads;
  json["head_dim"] = config.head_dim;
  json["max_position_embeddings"] = config.context_length;
  json["rms_norm_eps"] = Short(config.norm_eps);
}

void AddTokens(const Tokenizer& tokenizer, Json& json) {
  const auto id = [](std::optional<TokenId> token) {
    return token ? Json(token->value()) : Json();
  };
  json["bos_token_id"] = id(tokenizer.bos());
  json["eos_token_id"] = id(tokenizer.eos());
  json["pad_token_id"] = id(tokenizer.pad());
}

std::string Text(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

Result<std::string> HfConfigJson(const ModelFile& model, const Tokenizer& tokenizer,
                                 std::string_view dtype) {
  const ModelConfig& config = model.config();
  NIBBLE_TRY(const Architecture* architecture, FindArchitecture(config.architecture));
  NIBBLE_TRY(const HfModelType* type, TypeOf(model));
  Json json;
  json["architectures"] = Json::array({type->class_name});
  json["model_type"] = type->model_type;
  json["torch_dtype"] = dtype;
  AddSizes(config, json);
  json[std::string(architecture->hf_gate_key)] = GateName(config.gate, config.learned_positions);
  if (config.architecture == "llama" || config.architecture == "smollm3") {
    json["attention_bias"] = HasBias(model, Linear::kQuery);
    json["mlp_bias"] = HasBias(model, Linear::kUp);
  }
  if (type->defaults.query_scalar > 0) {
    const double scale = config.attention_scale;
    json["query_pre_attn_scalar"] = NearInteger(1 / (scale * scale));
    const auto cap = [](float value) { return value > 0 ? Json(Short(value)) : Json(); };
    json["attn_logit_softcapping"] = cap(config.attention_soft_cap);
    json["final_logit_softcapping"] = cap(config.final_soft_cap);
  }
  NIBBLE_RETURN_IF_ERROR(AddRopes(config, type->defaults, json));
  AddWindows(config, type->defaults, json);
  if (type->defaults.nope_interval > 0) {
    Json& rotates = json["no_rope_layers"] = Json::array();
    for (const LayerConfig& layer : config.layers) rotates.push_back(layer.rope >= 0 ? 1 : 0);
  }
  json["tie_word_embeddings"] = config.tied_embeddings;
  AddTokens(tokenizer, json);
  return Text(json);
}

std::string HfGenerationConfigJson(const Tokenizer& tokenizer) {
  Json json;
  json["_from_model_config"] = true;
  AddTokens(tokenizer, json);
  Json ends = Json::array();
  for (const TokenId id : tokenizer.end_tokens()) ends.push_back(id.value());
  if (ends.size() > 1) json["eos_token_id"] = ends;
  return Text(json);
}

}  // namespace nibble
