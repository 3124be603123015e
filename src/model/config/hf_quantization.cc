#include "model/config/hf_quantization.h"

#include <algorithm>
#include <optional>

namespace nibble {
namespace {

// Absent, null and false alike.
bool IsSet(JsonValue object, std::string_view key) {
  const std::optional<JsonValue> value = object.Find(key);
  if (!value || value->is_null()) return false;
  if (value->is_bool()) return *value->AsBool();
  if (value->is_object()) return value->ToString() != "{}";
  if (value->is_array()) return value->ToString() != "[]";
  return true;
}

Result<int> SmallInt(JsonValue object, std::string_view key, int fallback) {
  NIBBLE_TRY(const int64_t value, object.GetIntOr(key, fallback));
  if (value >= -1 && value <= 1 << 24) return static_cast<int>(value);
  return BadInput("'{}': expected a small number, found {}", key, value);
}

Result<HfHints> ReadHints(JsonValue object, std::string_view bits_key) {
  HfHints hints;
  NIBBLE_TRY(hints.bits, SmallInt(object, bits_key, 0));
  NIBBLE_TRY(const int group, SmallInt(object, "group_size", 0));
  hints.group = std::max(group, 0);  // -1: a row
  return hints;
}

Result<HfQuantization> ReadGptq(JsonValue config) {
  HfQuantization out{.method = HfQuantization::Method::kGptq, .gptq_v2 = false, .rules = {}};
  NIBBLE_TRY(const std::string_view format, config.GetStringOr("checkpoint_format", "gptq"));
  if (format != "gptq" && format != "gptq_v2") {
    return BadInput("'checkpoint_format': expected gptq or gptq_v2, found '{}'",
                    format.substr(0, 64));
  }
  if (IsSet(config, "is_marlin_format")) return BadInput("'is_marlin_format' is not supported");
  out.gptq_v2 = format == "gptq_v2";
  HfQuantization::Rule rule;
  rule.all = true;
  NIBBLE_TRY(rule.hints, ReadHints(config, "bits"));
  out.rules.push_back(std::move(rule));
  return out;
}

Result<HfQuantization> ReadAwq(JsonValue config) {
  HfQuantization out{.method = HfQuantization::Method::kAwq, .gptq_v2 = false, .rules = {}};
  NIBBLE_TRY(const std::string_view version, config.GetStringOr("version", "gemm"));
  if (version != "gemm" && version != "GEMM") {
    return BadInput("'version': expected gemm, found '{}'", version.substr(0, 64));
  }
  NIBBLE_TRY(HfHints hints, ReadHints(config, "bits"));
  NIBBLE_TRY(const int w_bit, SmallInt(config, "w_bit", hints.bits));
  if (w_bit != 4 && w_bit != 0) return BadInput("'bits': expected 4, found {}", w_bit);
  if (hints.group == 0) {
    NIBBLE_TRY(const int group, SmallInt(config, "q_group_size", 0));
    hints.group = std::max(group, 0);
  }
  HfQuantization::Rule rule;
  rule.all = true;
  rule.hints = hints;
  out.rules.push_back(std::move(rule));
  return out;
}

Result<HfQuantization> ReadBitsAndBytes(JsonValue config) {
  if (!IsSet(config, "load_in_8bit")) {
    return BadInput("bitsandbytes: expected 'load_in_8bit'; its 4-bit types are not supported");
  }
  HfQuantization out{.method = HfQuantization::Method::kLlmInt8, .gptq_v2 = false, .rules = {}};
  HfQuantization::Rule rule;
  rule.all = true;
  NIBBLE_TRY(const double threshold, config.GetDoubleOr("llm_int8_threshold", 6.0));
  rule.input = {
      .kind = HfInput::Kind::kInt8Outliers, .scale = 0, .threshold = static_cast<float>(threshold)};
  out.rules.push_back(std::move(rule));
  return out;
}

// AutoFP8's and DeepSeek's.
Result<HfQuantization> ReadF8(JsonValue config) {
  HfQuantization out{.method = HfQuantization::Method::kF8, .gptq_v2 = false, .rules = {}};
  out.f8_cache = true;
  HfQuantization::Rule rule;
  rule.all = true;
  NIBBLE_TRY(const std::string_view scheme, config.GetStringOr("activation_scheme", "dynamic"));
  if (scheme != "dynamic" && scheme != "static") {
    return BadInput("'activation_scheme': expected dynamic or static, found '{}'",
                    scheme.substr(0, 64));
  }
  rule.input.kind = scheme == "static" ? HfInput::Kind::kF8Static : HfInput::Kind::kF8Token;
  const std::optional<JsonValue> block = config.Find("weight_block_size");
  if (block && !block->is_null()) {
    NIBBLE_TRY(const JsonArray sizes, block->AsArray());
    std::vector<int64_t> numbers;
    for (const JsonValue size : sizes) {
      NIBBLE_TRY(const int64_t number, size.AsInt());
      numbers.push_back(number);
    }
    if (numbers.size() != 2 || std::ranges::min(numbers) < 1 ||
        std::ranges::max(numbers) > 1 << 20) {
      return BadInput("'weight_block_size': expected two sizes, found {}", block->ToString());
    }
    rule.hints.block_rows = static_cast<int>(numbers[0]);
    rule.hints.block_cols = static_cast<int>(numbers[1]);
    rule.input.kind = HfInput::Kind::kUsual;
  }
  out.rules.push_back(std::move(rule));
  return out;
}

// input_activations of a config group.
Result<HfInput> ReadInput(JsonValue group) {
  const std::optional<JsonValue> args = group.Find("input_activations");
  if (!args || args->is_null()) return HfInput{};
  NIBBLE_TRY(const int64_t bits, args->GetIntOr("num_bits", 8));
  NIBBLE_TRY(const std::string_view type, args->GetStringOr("type", "int"));
  NIBBLE_TRY(const bool symmetric, args->GetBoolOr("symmetric", true));
  NIBBLE_TRY(const std::string_view strategy, args->GetStringOr("strategy", "tensor"));
  const bool floats = type == "float";
  if (bits != 8 || (type != "int" && !floats)) {
    return BadInput("'input_activations': {} of {} bits is not supported", type.substr(0, 64),
                    bits);
  }
  if (!symmetric) return BadInput("'input_activations': asymmetric ones are not supported");
  using Kind = HfInput::Kind;
  if (IsSet(*args, "dynamic")) {
    // Groups of floats round little: the weights alone count. One scale for a whole batch would
    // let other rows change a row's result: each row has its own.
    if (strategy == "group" || strategy == "block") return HfInput{};
    return HfInput{.kind = floats ? Kind::kF8Token : Kind::kInt8Token, .scale = 0, .threshold = 0};
  }
  if (strategy != "tensor") {
    return BadInput("'input_activations': a static scale per {} is not supported",
                    strategy.substr(0, 64));
  }
  return HfInput{.kind = floats ? Kind::kF8Static : Kind::kInt8Static, .scale = 0, .threshold = 0};
}

Status ReadTargets(JsonValue group, HfQuantization::Rule& rule) {
  NIBBLE_TRY(const JsonValue targets, group.Get("targets"));
  auto names = targets.AsArray();
  if (!names) return Within("'targets'", names.error());
  for (const JsonValue value : *names) {
    auto name = value.AsString();
    if (!name) return Within("'targets'", name.error());
    if (*name == "Linear") {
      rule.all = true;
    } else if (name->starts_with("re:")) {
      NIBBLE_TRY(TargetPattern pattern, TargetPattern::Compile(name->substr(3)));
      rule.patterns.push_back(std::move(pattern));
    } else {
      rule.names.emplace_back(*name);
    }
  }
  return {};
}

Status RefuseTransforms(JsonValue config) {
  if (IsSet(config, "transform_config")) {
    return BadInput("'transform_config': rotations while it runs are not supported");
  }
  const std::optional<JsonValue> sparsity = config.Find("sparsity_config");
  if (sparsity && sparsity->is_object()) {
    NIBBLE_TRY(const std::string_view format, sparsity->GetStringOr("format", "dense"));
    if (format != "dense") {
      return BadInput("'sparsity_config': format '{}' is not supported", format.substr(0, 64));
    }
  }
  return {};
}

Result<HfQuantization> ReadCompressed(JsonValue config) {
  HfQuantization out{.method = HfQuantization::Method::kCompressed, .gptq_v2 = false, .rules = {}};
  NIBBLE_RETURN_IF_ERROR(RefuseTransforms(config));
  const std::optional<JsonValue> cache = config.Find("kv_cache_scheme");
  if (cache && cache->is_object()) {
    NIBBLE_TRY(const std::string_view type, cache->GetStringOr("type", "float"));
    NIBBLE_TRY(const int64_t bits, cache->GetIntOr("num_bits", 8));
    out.f8_cache = type == "float" && bits == 8;
  }
  NIBBLE_TRY(const JsonValue groups, config.Get("config_groups"));
  auto members = groups.AsObject();
  if (!members) return Within("'config_groups'", members.error());
  for (const auto& [name, group] : *members) {
    if (!group.is_object()) return BadInput("'config_groups.{}': expected an object", name);
    const auto read = [&]() -> Status {
      HfQuantization::Rule rule;
      NIBBLE_RETURN_IF_ERROR(ReadTargets(group, rule));
      if (IsSet(group, "output_activations")) {
        return BadInput("'output_activations' are not supported");
      }
      const std::optional<JsonValue> weights = group.Find("weights");
      if (weights && weights->is_object()) {
        NIBBLE_TRY(rule.hints, ReadHints(*weights, "num_bits"));
      }
      NIBBLE_TRY(rule.input, ReadInput(group));
      out.rules.push_back(std::move(rule));
      return {};
    };
    const Status status = read();
    if (!status) {
      return Within("'config_groups." + std::string(name.substr(0, 64)) + "'", status.error());
    }
  }
  return out;
}

}  // namespace

Result<const HfQuantization::Rule*> HfQuantization::Find(std::string_view module) const {
  for (const Rule& rule : rules) {
    if (std::ranges::find(rule.names, module) != rule.names.end()) return &rule;
    for (const TargetPattern& pattern : rule.patterns) {
      NIBBLE_TRY(const bool matches, pattern.Matches(module));
      if (matches) return &rule;
    }
  }
  for (const Rule& rule : rules) {
    if (rule.all) return &rule;
  }
  return nullptr;
}

Result<HfQuantization> ReadHfQuantization(JsonValue config) {
  NIBBLE_TRY(const std::string_view method, config.GetStringOr("quant_method", "gptq"));
  if (method == "gptq") return ReadGptq(config);
  if (method == "awq") return ReadAwq(config);
  if (method == "compressed-tensors" || method == "compressed_tensors") {
    return ReadCompressed(config);
  }
  if (method == "bitsandbytes") return ReadBitsAndBytes(config);
  if (method == "fp8") return ReadF8(config);
  return BadInput(
      "checkpoints quantised by '{}' are not supported; supported: gptq, awq, "
      "compressed-tensors, bitsandbytes (8-bit), fp8",
      method.substr(0, 64));
}

}  // namespace nibble
