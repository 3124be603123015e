#include "model/config/gguf_config.h"

#include <cmath>
#include <string>
#include <utility>

#include "model/config/validate.h"

namespace nibble {
namespace {

// Reads "<architecture>.<key>".
class Keys {
 public:
  Keys(const GgufFile& file, std::string_view architecture)
      : file_(file), prefix_(std::string(architecture) + ".") {}

  const GgufFile& file() const { return file_; }
  std::string Name(std::string_view key) const { return prefix_ + std::string(key); }
  bool Has(std::string_view key) const { return file_.Has(Name(key)); }

  Result<int> Int(std::string_view key) const {
    NIBBLE_TRY(const int64_t value, file_.GetInt(Name(key)));
    return Narrow(key, value);
  }
  Result<int> IntOr(std::string_view key, int fallback) const {
    NIBBLE_TRY(const int64_t value, file_.GetIntOr(Name(key), fallback));
    return Narrow(key, value);
  }
  Result<double> DoubleOr(std::string_view key, double fallback) const {
    NIBBLE_TRY(const double value, file_.GetDoubleOr(Name(key), fallback));
    if (!std::isfinite(value)) return BadInput("'{}' is not finite", Name(key));
    return value;
  }

  // A number, or an array of one number per layer, which must be equal.
  Result<int> UniformInt(std::string_view key, int fallback) const {
    const GgufEntry* entry = file_.Find(Name(key));
    if (entry == nullptr || entry->type != GgufType::kArray) return IntOr(key, fallback);
    if (entry->count == 0 || entry->count > ConfigLimits::kLayers) {
      return BadInput("'{}': expected 1 to {} values, found {}", Name(key),
                      static_cast<int>(ConfigLimits::kLayers), entry->count);
    }
    NIBBLE_TRY(const std::vector<int64_t> values, file_.GetInts(Name(key)));
    for (const int64_t value : values) {
      if (value != values.front()) {
        return BadInput("'{}' differs between layers ({} and {}), which is not supported",
                        Name(key), values.front(), value);
      }
    }
    return Narrow(key, values.front());
  }

 private:
  Result<int> Narrow(std::string_view key, int64_t value) const {
    if (value >= 0 && value <= ConfigLimits::kContext) return static_cast<int>(value);
    return BadInput("'{}': expected 0 to {}, found {}", Name(key),
                    static_cast<int>(ConfigLimits::kContext), value);
  }

  const GgufFile& file_;
  std::string prefix_;
};

// A small float tensor beside the layers (rope_freqs.weight); empty when the file has none.
Result<std::vector<double>> FactorTensor(const GgufFile& file, std::string_view name) {
  std::vector<double> factors;
  const SourceTensor* tensor = file.tensors().Find(name);
  if (tensor == nullptr) return factors;
  if (tensor->format != Format::kF32 || tensor->elements() > ConfigLimits::kHeadDim) {
    return BadInput("tensor '{}': expected at most {} F32 values, found {} of {}", name,
                    static_cast<int>(ConfigLimits::kHeadDim), tensor->ShapeString(),
                    tensor->type_name);
  }
  std::vector<float> values(tensor->elements());
  TraitsOf(Format::kF32).decode(tensor->bytes.data(), values.data(), values.size());
  factors.assign(values.begin(), values.end());
  return factors;
}

// Checks "<architecture>.vocab_size" and the tokens' number against each other.
Result<int> Vocabulary(const Keys& keys) {
  const GgufEntry* tokens = keys.file().Find("tokenizer.ggml.tokens");
  int count = 0;
  if (tokens != nullptr && tokens->type == GgufType::kArray) {
    if (tokens->count > ConfigLimits::kVocabulary) {
      return BadInput("'tokenizer.ggml.tokens': expected at most {} tokens, found {}",
                      static_cast<int>(ConfigLimits::kVocabulary), tokens->count);
    }
    count = static_cast<int>(tokens->count);
  }
  if (keys.Has("vocab_size")) {
    NIBBLE_TRY(const int size, keys.Int("vocab_size"));
    if (count != 0 && count != size) {
      return BadInput("'{}' is {} but 'tokenizer.ggml.tokens' holds {} tokens",
                      keys.Name("vocab_size"), size, count);
    }
    return size;
  }
  if (count != 0) return count;
  const SourceTensor* embedding = keys.file().tensors().Find("token_embd.weight");
  if (embedding == nullptr || embedding->rows() > ConfigLimits::kVocabulary) {
    return BadInput(
        "vocabulary size: '{}', 'tokenizer.ggml.tokens' and a usable tensor "
        "'token_embd.weight' are all missing",
        keys.Name("vocab_size"));
  }
  return static_cast<int>(embedding->rows());
}

Status ReadSizes(const Keys& keys, ModelConfig& config) {
  NIBBLE_TRY(const int layers, keys.Int("block_count"));
  if (layers < 1 || layers > ConfigLimits::kLayers) {
    return BadInput("'{}': expected 1 to {}, found {}", keys.Name("block_count"),
                    static_cast<int>(ConfigLimits::kLayers), layers);
  }
  config.layers.resize(static_cast<size_t>(layers));
  NIBBLE_TRY(config.width, keys.Int("embedding_length"));
  NIBBLE_TRY(config.ffn_width, keys.UniformInt("feed_forward_length", 0));
  NIBBLE_TRY(config.heads, keys.UniformInt("attention.head_count", 0));
  NIBBLE_TRY(config.kv_heads, keys.UniformInt("attention.head_count_kv", config.heads));
  NIBBLE_TRY(config.context_length, keys.Int("context_length"));
  NIBBLE_TRY(config.head_dim, keys.IntOr("attention.key_length", 0));
  if (config.head_dim == 0) {
    if (config.heads == 0 || config.width % config.heads != 0) {
      return BadInput("'{}' ({}) is not a multiple of '{}' ({})", keys.Name("embedding_length"),
                      config.width, keys.Name("attention.head_count"), config.heads);
    }
    config.head_dim = config.width / config.heads;
  }
  NIBBLE_TRY(const int value_length, keys.IntOr("attention.value_length", config.head_dim));
  if (value_length != config.head_dim) {
    return BadInput("'{}' is {} and the key length {}: different lengths are not supported",
                    keys.Name("attention.value_length"), value_length, config.head_dim);
  }
  NIBBLE_TRY(config.vocabulary, Vocabulary(keys));
  const bool layer_norm = config.norm == NormKind::kLayer;
  const std::string eps =
      keys.Name(layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon");
  NIBBLE_TRY(const double norm_eps, keys.file().GetDouble(eps));
  config.norm_eps = static_cast<float>(norm_eps);
  return {};
}

Status RefuseUnsupported(const Keys& keys) {
  NIBBLE_TRY(const int experts, keys.IntOr("expert_count", 0));
  if (experts > 0) {
    return BadInput("'{}' is {}: mixtures of experts are not supported", keys.Name("expert_count"),
                    experts);
  }
  NIBBLE_TRY(const bool causal, keys.file().GetBoolOr(keys.Name("attention.causal"), true));
  if (!causal) {
    return BadInput("'{}' is false: an encoder generates no text", keys.Name("attention.causal"));
  }
  return {};
}

Status ReadWindows(const Keys& keys, const Architecture& architecture, ModelConfig& config) {
  int pattern = architecture.gguf_window_pattern;
  if (pattern < 0) return {};
  NIBBLE_TRY(const int window, keys.IntOr("attention.sliding_window", architecture.gguf_window));
  std::vector<bool> windowed;
  const std::string pattern_key = keys.Name("attention.sliding_window_pattern");
  const GgufEntry* entry = keys.file().Find(pattern_key);
  if (entry != nullptr && entry->type == GgufType::kArray) {
    if (entry->count != config.layers.size()) {
      return BadInput("'{}': expected {} values, one per layer, found {}", pattern_key,
                      config.layers.size(), entry->count);
    }
    NIBBLE_TRY(windowed, keys.file().GetBools(pattern_key));
  } else {
    NIBBLE_TRY(pattern, keys.IntOr("attention.sliding_window_pattern", pattern));
  }
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const bool sliding =
        !windowed.empty() ? windowed[i] : pattern == 0 || (i + 1) % static_cast<size_t>(pattern);
    if (sliding) config.layers[i].window = window;
  }
  return {};
}

Status ReadRopeScaling(const Keys& keys, RopeConfig& rope, int context) {
  NIBBLE_TRY(const std::string_view type,
             keys.file().GetStringOr(keys.Name("rope.scaling.type"), ""));
  NIBBLE_TRY(rope.frequency_factors, FactorTensor(keys.file(), "rope_freqs.weight"));
  NIBBLE_TRY(rope.short_factor, FactorTensor(keys.file(), "rope_factors_short.weight"));
  NIBBLE_TRY(rope.long_factor, FactorTensor(keys.file(), "rope_factors_long.weight"));
  NIBBLE_TRY(const double linear, keys.DoubleOr("rope.scale_linear", 0));
  NIBBLE_TRY(rope.factor, keys.DoubleOr("rope.scaling.factor", linear > 0 ? linear : 1));
  if (rope.factor == 0) rope.factor = 1;  // written by old converters for "none"
  NIBBLE_TRY(rope.original_context, keys.IntOr("rope.scaling.original_context_length", context));
  NIBBLE_TRY(rope.attention_multiplier, keys.DoubleOr("rope.scaling.attn_factor", 1));
  if (!rope.short_factor.empty() || !rope.long_factor.empty() || type == "longrope" ||
      type == "su") {
    rope.scaling = RopeScaling::kLongRope;
    // llama.cpp scales by attn_factor alone, whose absence means 1.
    rope.attention_factor = std::exchange(rope.attention_multiplier, 1);
  } else if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    NIBBLE_TRY(rope.beta_fast, keys.DoubleOr("rope.scaling.yarn_beta_fast", 32));
    NIBBLE_TRY(rope.beta_slow, keys.DoubleOr("rope.scaling.yarn_beta_slow", 1));
    NIBBLE_TRY(rope.mscale_all_dim, keys.DoubleOr("rope.scaling.yarn_log_multiplier", 0));
    if (rope.mscale_all_dim != 0) rope.mscale = 1;
    NIBBLE_TRY(const double more, keys.DoubleOr("rope.scaling.yarn_attn_factor", 1));
    rope.attention_multiplier *= more;
  } else if (type == "linear" || (type.empty() && rope.factor != 1)) {
    rope.scaling = RopeScaling::kLinear;
  } else if (type.empty() || type == "none") {
    rope.factor = 1;
  } else {
    return BadInput("'{}': expected none, linear, yarn or longrope, found '{}'",
                    keys.Name("rope.scaling.type"), type.substr(0, 64));
  }
  return {};
}

Status ReadRopes(const Keys& keys, const Architecture& architecture, ModelConfig& config) {
  if (config.learned_positions) return {};
  RopeConfig global;
  global.interleaved = architecture.gguf_interleaved_rope;
  NIBBLE_TRY(global.theta, keys.DoubleOr("rope.freq_base", architecture.two_ropes ? 1e6 : 10000));
  NIBBLE_TRY(global.dims, keys.IntOr("rope.dimension_count", config.head_dim));
  RopeConfig local = global;
  NIBBLE_RETURN_IF_ERROR(ReadRopeScaling(keys, global, config.context_length));
  config.ropes.push_back(std::move(global));
  if (architecture.two_ropes) {
    NIBBLE_TRY(local.theta, keys.DoubleOr("rope.freq_base_swa", 10000));
    config.ropes.push_back(std::move(local));
  }
  const int nope = architecture.gguf_nope_interval;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    LayerConfig& layer = config.layers[i];
    layer.rope = architecture.two_ropes && layer.window > 0 ? 1 : 0;
    if (nope > 0 && (i + 1) % static_cast<size_t>(nope) == 0) layer.rope = -1;
  }
  return {};
}

Status ReadAttentionScale(const Keys& keys, const Architecture& architecture, ModelConfig& config) {
  double scalar = config.head_dim;
  if (std::ssize(config.layers) == architecture.gguf_wide_query_layers) {
    scalar = static_cast<double>(config.width) / config.heads;
  }
  NIBBLE_TRY(const double scale, keys.DoubleOr("attention.scale", 0));
  config.attention_scale = static_cast<float>(scale > 0 ? scale : 1 / std::sqrt(scalar));
  const bool caps = architecture.attention_soft_cap;
  NIBBLE_TRY(const double attention_cap,
             keys.DoubleOr("attn_logit_softcapping", caps ? 50.0 : 0.0));
  NIBBLE_TRY(const double final_cap, keys.DoubleOr("final_logit_softcapping", caps ? 30.0 : 0.0));
  config.attention_soft_cap = caps ? static_cast<float>(attention_cap) : 0;
  config.final_soft_cap = static_cast<float>(final_cap);
  return {};
}

}  // namespace

Result<ModelConfig> ReadGgufConfig(const GgufFile& file, const Architecture& architecture) {
  const Keys keys(file, architecture.name);
  ModelConfig config;
  config.architecture = architecture.name;
  NIBBLE_TRY(const std::string_view name, file.GetStringOr("general.name", ""));
  config.name = name;
  config.norm = architecture.norm;
  config.ffn = architecture.ffn;
  config.gate = architecture.gate;
  config.qk_norm = architecture.qk_norm;
  config.post_norms = architecture.post_norms;
  config.learned_positions = architecture.learned_positions;
  NIBBLE_RETURN_IF_ERROR(RefuseUnsupported(keys));
  NIBBLE_RETURN_IF_ERROR(ReadSizes(keys, config));
  NIBBLE_RETURN_IF_ERROR(ReadWindows(keys, architecture, config));
  NIBBLE_RETURN_IF_ERROR(ReadRopes(keys, architecture, config));
  NIBBLE_RETURN_IF_ERROR(ReadAttentionScale(keys, architecture, config));
  if (architecture.scaled_embedding) {
    config.embedding_scale = std::sqrt(static_cast<float>(config.width));
  }
  NIBBLE_RETURN_IF_ERROR(ValidateConfig(config));
  return config;
}

}  // namespace nibble
