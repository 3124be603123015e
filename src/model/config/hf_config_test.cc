#include "model/config/hf_config.h"

#include <gtest/gtest.h>

#include <string>

namespace nibble {
namespace {

Result<HfConfig> Read(const std::string& json) {
  auto document = JsonDocument::Parse(json);
  if (!document) return std::unexpected(document.error());
  return ReadHfConfig(document->root());
}

std::string ErrorOf(const std::string& json) {
  const auto config = Read(json);
  return config ? "no error" : config.error().message;
}

TEST(HfConfig, UnknownArchitecturesNameTheKnownOnes) {
  const std::string error = ErrorOf(R"({"model_type": "flamingo9"})");
  EXPECT_NE(error.find("'flamingo9'"), std::string::npos) << error;
  for (const HfModelType& type : HfModelTypes()) {
    EXPECT_NE(error.find(type.model_type), std::string::npos) << error;
  }
  EXPECT_NE(ErrorOf(R"({"model_type": "qwen3_moe"})").find("mixture of experts"),
            std::string::npos);
  EXPECT_NE(ErrorOf(R"({"model_type": "bert"})").find("encoder"), std::string::npos);
  EXPECT_EQ(ErrorOf("{}"), "'model_type' is missing");
  EXPECT_NE(ErrorOf("[]").find("expected an object"), std::string::npos);
}

TEST(HfConfig, ArchitecturesStandInForModelType) {
  const auto config = Read(R"({"architectures": ["SmolLM3ForCausalLM"]})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->config.architecture, "smollm3");
}

TEST(HfConfig, TextConfigOfGemma3) {
  const auto config = Read(R"({"model_type": "gemma3", "vision_config": {},
      "text_config": {"model_type": "gemma3_text", "hidden_size": 640, "num_attention_heads": 4,
                      "num_key_value_heads": 1, "num_hidden_layers": 7}})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->config.width, 640);
  EXPECT_EQ(config->config.layers.size(), 7U);
  EXPECT_EQ(config->config.layers[5].window, 0);
  EXPECT_EQ(config->config.layers[6].window, 4096);
}

TEST(HfConfig, OldNameOfLongRope) {
  const auto config = Read(R"({"model_type": "phi3", "hidden_size": 16, "num_attention_heads": 4,
      "num_hidden_layers": 1, "max_position_embeddings": 131072,
      "original_max_position_embeddings": 4096,
      "rope_scaling": {"type": "su", "short_factor": [1, 1.5], "long_factor": [1, 8]}})");
  ASSERT_TRUE(config) << config.error().message;
  const RopeConfig& rope = config->config.ropes[0];
  EXPECT_EQ(rope.scaling, RopeScaling::kLongRope);
  EXPECT_EQ(rope.original_context, 4096);
  EXPECT_EQ(rope.factor, 32);
}

struct BadConfig {
  std::string json;   // members beside the model_type
  std::string names;  // what the message must hold
};

class BadHfConfig : public ::testing::TestWithParam<BadConfig> {};

TEST_P(BadHfConfig, IsRefusedByName) {
  const std::string error = ErrorOf(R"({"model_type": "llama", )" + GetParam().json + "}");
  EXPECT_NE(error.find(GetParam().names), std::string::npos) << error;
}

INSTANTIATE_TEST_SUITE_P(
    Values, BadHfConfig,
    ::testing::Values(
        BadConfig{R"("hidden_size": -64)", "'hidden_size'"},
        BadConfig{R"("hidden_size": "64")", "'hidden_size'"},
        BadConfig{R"("hidden_size": 0)", "'hidden_size' (0)"},
        BadConfig{R"("hidden_size": 100)", "'hidden_size' (100)"},
        BadConfig{R"("hidden_size": 1e300)", "'hidden_size'"},
        BadConfig{R"("num_hidden_layers": 2147483648)", "'num_hidden_layers'"},
        BadConfig{R"("num_hidden_layers": 0)", "'num_hidden_layers'"},
        BadConfig{R"("num_hidden_layers": 100000000)", "'num_hidden_layers'"},
        BadConfig{R"("num_attention_heads": 0)", "'num_attention_heads'"},
        BadConfig{R"("num_attention_heads": 8, "num_key_value_heads": 3)", "multiple"},
        BadConfig{R"("num_key_value_heads": -1)", "'num_key_value_heads'"},
        BadConfig{R"("head_dim": 100000)", "head size"},
        BadConfig{R"("vocab_size": 0)", "vocabulary size"},
        BadConfig{R"("vocab_size": 1000000000000)", "'vocab_size'"},
        BadConfig{R"("intermediate_size": 9007199254740993)", "'intermediate_size'"},
        BadConfig{R"("max_position_embeddings": 0)", "context length"},
        BadConfig{R"("rms_norm_eps": NaN)", "'rms_norm_eps'"},
        BadConfig{R"("rms_norm_eps": -1)", "norm epsilon"},
        BadConfig{R"("rope_theta": 0)", "rope theta"},
        BadConfig{R"("rope_theta": null, "rope_scaling": 5)", "'rope_scaling'"},
        BadConfig{R"("rope_scaling": {"type": "dynamic", "factor": 2})", "dynamic"},
        BadConfig{R"("rope_scaling": {"type": "linear"})", "factor"},
        BadConfig{R"("rope_scaling": {"type": "longrope"})", "longrope"},
        BadConfig{R"("rope_scaling": {"type": "yarn", "factor": 2, "beta_slow": -1})", "beta_slow"},
        BadConfig{R"("rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4})",
                  "low_freq_factor"},
        BadConfig{R"("hidden_act": "relu")", "'relu'"},
        BadConfig{R"("quantization_config": {"quant_method": "hqq"})", "'hqq'"},
        BadConfig{R"("quantization_config": {"quant_method": "gptq", "bits": 1e30})", "'bits'"},
        BadConfig{R"("quantization_config": {"checkpoint_format": "marlin"})", "'marlin'"},
        BadConfig{R"("quantization_config": {"quant_method": "awq", "version": "gemv"})", "'gemv'"},
        BadConfig{R"("quantization_config": {"quant_method": "bitsandbytes"})", "'load_in_8bit'"},
        BadConfig{R"("quantization_config": {"quant_method": "fp8", "weight_block_size": [0, 1]})",
                  "'weight_block_size'"},
        BadConfig{R"("quantization_config": {"quant_method": "compressed-tensors"})",
                  "'config_groups'"},
        BadConfig{R"("quantization_config": {"quant_method": "compressed-tensors",)"
                  R"("config_groups": {"a": {"targets": ["re:("]}}})",
                  "'config_groups.a'"},
        BadConfig{R"("quantization_config": {"quant_method": "compressed-tensors", )"
                  R"("config_groups": {"a": {"targets": ["Linear"], )"
                  R"("input_activations": {"num_bits": 4}}}})",
                  "'input_activations'"},
        BadConfig{R"("quantization_config": {"quant_method": "compressed-tensors", )"
                  R"("transform_config": {"a": 1}, "config_groups": {}})",
                  "'transform_config'"}));

TEST(HfConfig, LayerTypesMustFit) {
  const std::string start = R"({"model_type": "gemma2", "num_hidden_layers": 2, "layer_types": )";
  EXPECT_NE(ErrorOf(start + R"(["full_attention"]})").find("found 1"), std::string::npos);
  EXPECT_NE(ErrorOf(start + R"(["full_attention", "chunked_attention"]})").find("chunked"),
            std::string::npos);
  EXPECT_NE(ErrorOf(start + R"([1, 2]})").find("layer_types"), std::string::npos);
}

}  // namespace
}  // namespace nibble
