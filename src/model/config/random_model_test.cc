#include "model/config/random_model.h"

#include <gtest/gtest.h>

#include <set>

#include "model/config/hf_config.h"
#include "model/config/model_file.h"

namespace nibble {
namespace {

Result<HfConfig> Read(std::string text) {
  NIBBLE_TRY(const JsonDocument document, JsonDocument::Parse(std::move(text)));
  return ReadHfConfig(document.root());
}

// Parameters of a shape with every bias that the published model has.
int64_t Parameters(const ModelConfig& c) {
  const int64_t width = c.width;
  const int64_t q = int64_t{c.heads} * c.head_dim;
  const int64_t kv = int64_t{c.kv_heads} * c.head_dim;
  int64_t layer = width * (2 * q + 2 * kv) + 3 * width * c.ffn_width;
  layer += (c.post_norms ? 4 : 2) * width + (c.qk_norm ? 2 * c.head_dim : 0);
  if (c.architecture == "qwen2") layer += q + 2 * kv;
  const int64_t tables = (c.tied_embeddings ? 1 : 2) * c.vocabulary * width;
  return tables + width + std::ssize(c.layers) * layer;
}

// The numbers are those that the models' pages give.
TEST(NamedShapes, HaveThePublishedNumberOfParameters) {
  const std::pair<std::string_view, int64_t> published[] = {
      {"smollm2-135m", 134515008},       {"smollm2-360m", 361821120},
      {"smollm2-1.7b", 1711376384},      {"smollm3-3b", 3075098624},
      {"tinyllama-1.1b", 1100048384},    {"gemma3-270m", 268098176},
      {"gemma3-1b", 999885952},          {"qwen2.5-0.5b", 494032768},
      {"qwen2.5-1.5b", 1543714304},      {"qwen2.5-3b", 3085938688},
      {"qwen2.5-7b", 7615616512},        {"qwen3-0.6b", 596049920},
      {"qwen3-1.7b", 1720574976},        {"qwen3-4b", 4022468096},
      {"qwen3-8b", 8190735360},          {"llama-2-7b", 6738415616},
      {"llama-3-8b", 8030261248},        {"llama-3.1-8b", 8030261248},
      {"llama-3.2-1b", 1235814400},      {"llama-3.2-3b", 3212749824},
      {"mistral-7b", 7241732096},        {"llama-2-13b", 13015864320},
      {"llama-2-70b", 68976648192},      {"llama-3-70b", 70553706496},
      {"llama-3.1-70b", 70553706496},    {"llama-3.1-405b", 405853388800},
      {"qwen2.5-14b", 14770033664},      {"qwen2.5-32b", 32763876352},
      {"qwen2.5-72b", 72706203648},      {"qwen3-14b", 14768307200},
      {"qwen3-32b", 32762123264},        {"gemma2-2b", 2614341888},
      {"gemma2-9b", 9241705984},         {"gemma2-27b", 27227128320},
      {"phi-3-mini", 3821079552},        {"phi-3-medium", 13960238080},
      {"mistral-small-24b", 23572403200}};
  std::set<std::string_view> checked;
  for (const auto& [name, parameters] : published) {
    auto text = ShapeByName(name);
    ASSERT_TRUE(text) << text.error().message;
    const auto hf = Read(*std::move(text));
    ASSERT_TRUE(hf) << name << ": " << hf.error().message;
    EXPECT_EQ(Parameters(hf->config), parameters) << name;
    checked.insert(name);
  }
  for (const std::string_view name : ShapeNames()) EXPECT_TRUE(checked.contains(name)) << name;
}

TEST(NamedShapes, KeepWhatDecidesTheWorkOfAStep) {
  auto text = ShapeByName("gemma3-270m");
  ASSERT_TRUE(text);
  const auto gemma = Read(*std::move(text));
  ASSERT_TRUE(gemma) << gemma.error().message;
  const std::vector<LayerConfig>& layers = gemma->config.layers;
  ASSERT_EQ(layers.size(), 18U);
  for (size_t i = 0; i < layers.size(); ++i) {
    EXPECT_EQ(layers[i].window, i % 6 == 5 ? 0 : 512) << i;
  }
  text = ShapeByName("llama-3.2-1b");
  ASSERT_TRUE(text);
  const auto llama = Read(*std::move(text));
  ASSERT_TRUE(llama) << llama.error().message;
  EXPECT_EQ(llama->config.ropes[0].scaling, RopeScaling::kLlama3);
  EXPECT_EQ(llama->config.ropes[0].factor, 32);
  const auto unknown = ShapeByName("gemma3-270b");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("gemma3-270m, "), std::string::npos);
}

TEST(RandomModel, MakesTheTensorsOfEveryArchitecture) {
  const auto mix = FormatMix::FromName("q8_0");
  ASSERT_TRUE(mix);
  for (const std::string type :
       {"llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi3", "smollm3", "gpt2"}) {
    for (const char* tied : {"true", "false"}) {
      std::string text =
          type == "gpt2"
              ? R"({"n_embd":64,"n_layer":2,"n_head":4,"n_positions":96,"vocab_size":100,)"
              : R"({"hidden_size":64,"intermediate_size":96,"num_hidden_layers":2,"head_dim":16,)"
                R"("num_attention_heads":4,"num_key_value_heads":2,"vocab_size":100,)"
                R"("max_position_embeddings":96,)";
      text += R"("model_type":")" + type + R"(","tie_word_embeddings":)" + tied + "}";
      const auto document = JsonDocument::Parse(std::move(text));
      ASSERT_TRUE(document);
      const auto file = ModelFile::Random(document->root(), *mix);
      EXPECT_TRUE(file) << type << ": " << file.error().message;
    }
  }
}

TEST(HfConfigOfExperts, IsRefusedByTheKey) {
  for (const std::string key : {"num_local_experts", "num_experts", "n_routed_experts",
                                "moe_num_experts", "kv_lora_rank"}) {
    const auto refused = Read(R"({"model_type": "qwen3", ")" + key + R"(": 8})");
    ASSERT_FALSE(refused) << key;
    EXPECT_NE(refused.error().message.find(key), std::string::npos) << refused.error().message;
    for (const char* none : {"0", "null"}) {
      const auto read = Read(R"({"model_type": "qwen3", ")" + key + R"(": )" + none + "}");
      EXPECT_TRUE(read) << read.error().message;
    }
  }
}

}  // namespace
}  // namespace nibble
