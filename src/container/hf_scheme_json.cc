#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "container/hf_scheme.h"
#include "container/json.h"
#include "container/json_text.h"

namespace nibble {
namespace {

std::string JsonStrings(std::span<const std::string> values) {
  std::string out = "[";
  for (const std::string& value : values) {
    if (out.size() > 1) out += ",";
    AppendJsonString(value, out);
  }
  return out + "]";
}

// A text as a regular expression that matches nothing else.
std::string Quoted(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view(R"(\^$.|?*+()[]{})").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

std::string GptqConfig(const HfScheme& scheme, std::span<const std::string> kept) {
  // GPTQModel's form of "these stay as they are": a rule with a minus sign.
  std::string dynamic;
  for (const std::string& module : kept) {
    if (module == "lm_head") continue;  // said by its own key
    if (!dynamic.empty()) dynamic += ",";
    AppendJsonString("-:^" + Quoted(module) + "$", dynamic);
    dynamic += ":{}";
  }
  return fmt::format(
      R"({{"quant_method":"gptq","checkpoint_format":"{}","bits":{},"group_size":{},)"
      R"("desc_act":{},"sym":{},"damp_percent":{},"static_groups":{},"true_sequential":{},)"
      R"("lm_head":false{}}})",
      HfLayoutName(scheme.layout), scheme.bits, scheme.group == 0 ? -1 : scheme.group,
      scheme.act_order, scheme.symmetric, scheme.damp_percent, scheme.static_groups,
      scheme.true_sequential, dynamic.empty() ? "" : R"(,"dynamic":{)" + dynamic + "}");
}

std::string AwqConfig(const HfScheme& scheme, std::span<const std::string> kept) {
  return fmt::format(
      R"({{"quant_method":"awq","bits":4,"group_size":{},"zero_point":{},"version":"gemm",)"
      R"("modules_to_not_convert":{}}})",
      scheme.group == 0 ? -1 : scheme.group, !scheme.symmetric, JsonStrings(kept));
}

std::string CompressedWeights(const HfScheme& scheme) {
  std::string_view strategy = "group";
  if (scheme.group == 0 || scheme.layout != HfLayout::kPackQuantized) strategy = "channel";
  if (scheme.tensor_scale) strategy = "tensor";
  const bool grouped = strategy == "group";
  const bool floats = scheme.layout == HfLayout::kFloatQuantized;
  return fmt::format(
      R"({{"num_bits":{},"type":"{}","symmetric":{},"strategy":"{}","group_size":{},)"
      R"("block_structure":null,"dynamic":false,"actorder":{},"observer":"minmax",)"
      R"("observer_kwargs":{{}}}})",
      floats ? 8 : scheme.bits, floats ? "float" : "int", floats || scheme.symmetric, strategy,
      grouped ? std::to_string(scheme.group) : "null", scheme.act_order ? R"("group")" : "null");
}

std::string CompressedActivations(const HfScheme& scheme) {
  if (scheme.activations == HfActivations::kFloat) return "null";
  return fmt::format(
      R"({{"num_bits":8,"type":"{}","symmetric":true,"strategy":"token","group_size":null,)"
      R"("block_structure":null,"dynamic":true,"actorder":null,"observer":null,)"
      R"("observer_kwargs":{{}}}})",
      scheme.activations == HfActivations::kInt8Token ? "int" : "float");
}

std::string CompressedConfig(const HfScheme& scheme, std::span<const std::string> kept) {
  return fmt::format(R"({{"quant_method":"compressed-tensors","format":"{}",)"
                     R"("quantization_status":"compressed","global_compression_ratio":null,)"
                     R"("kv_cache_scheme":null,"ignore":{},"config_groups":{{"group_0":{{)"
                     R"("targets":["Linear"],"format":"{}","weights":{},"input_activations":{},)"
                     R"("output_activations":null}}}}}})",
                     HfLayoutName(scheme.layout), JsonStrings(kept), HfLayoutName(scheme.layout),
                     CompressedWeights(scheme), CompressedActivations(scheme));
}

}  // namespace

std::string HfQuantizationConfig(const HfScheme& scheme, std::span<const std::string> kept) {
  switch (scheme.layout) {
    case HfLayout::kGptq:
    case HfLayout::kGptqV2:
      return GptqConfig(scheme, kept);
    case HfLayout::kAwq:
      return AwqConfig(scheme, kept);
    case HfLayout::kPackQuantized:
    case HfLayout::kIntQuantized:
    case HfLayout::kFloatQuantized:
      return CompressedConfig(scheme, kept);
    case HfLayout::kLlmInt8:
      return fmt::format(
          R"({{"quant_method":"bitsandbytes","load_in_8bit":true,"load_in_4bit":false,)"
          R"("llm_int8_threshold":{},"llm_int8_has_fp16_weight":false,)"
          R"("llm_int8_enable_fp32_cpu_offload":false,"llm_int8_skip_modules":{}}})",
          scheme.outlier_threshold, JsonStrings(kept));
  }
  return {};
}

namespace {

// The members of a config.json but for some, each with a comma behind it.
Result<std::string> MembersBut(std::string_view config_json,
                               std::span<const std::string_view> without) {
  NIBBLE_TRY(const JsonDocument document, JsonDocument::Parse(std::string(config_json)));
  NIBBLE_TRY(const JsonObject object, document.root().AsObject());
  std::string out;
  for (const auto& [key, value] : object) {
    if (std::ranges::find(without, key) != without.end()) continue;
    out += "  ";
    AppendJsonString(key, out);
    out += ": " + value.ToString() + ",\n";
  }
  return out;
}

}  // namespace

Result<std::string> HfConfigWithQuantization(std::string_view config_json, const HfScheme& scheme,
                                             std::span<const std::string> kept) {
  constexpr std::array<std::string_view, 1> kReplaced = {"quantization_config"};
  NIBBLE_TRY(const std::string members, MembersBut(config_json, kReplaced));
  return "{\n" + members + "  \"quantization_config\": " + HfQuantizationConfig(scheme, kept) +
         "\n}\n";
}

Result<std::string> HfConfigInFloats(std::string_view config_json, std::string_view dtype) {
  constexpr std::array<std::string_view, 3> kReplaced = {"quantization_config", "torch_dtype",
                                                         "dtype"};
  NIBBLE_TRY(std::string out, MembersBut(config_json, kReplaced));
  out = "{\n" + out + "  \"torch_dtype\": ";
  AppendJsonString(dtype, out);
  return out + "\n}\n";
}

}  // namespace nibble
