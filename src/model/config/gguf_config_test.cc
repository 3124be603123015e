#include "model/config/gguf_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "container/gguf_writer.h"
#include "tests/support/test_data.h"

namespace nibble {
namespace {

// A file of metadata and of what `more` adds; one small tensor, because a model has some.
class GgufConfig : public ::testing::Test {
 protected:
  using More = std::function<void(GgufWriter&, const std::string&)>;

  Result<ModelConfig> Read(
      const std::string& architecture, int layers, const More& more = {},
      std::span<const std::pair<std::string, std::vector<float>>> factors = {}) {
    GgufWriter writer;
    const std::string prefix = architecture + ".";
    writer.SetString("general.architecture", architecture);
    writer.SetUint32(prefix + "block_count", static_cast<uint32_t>(layers));
    writer.SetUint32(prefix + "context_length", 4096);
    writer.SetUint32(prefix + "embedding_length", 32);
    writer.SetUint32(prefix + "vocab_size", 10);
    writer.SetFloat32(prefix + "attention.layer_norm_rms_epsilon", 1e-5F);
    if (!per_layer_) {
      writer.SetUint32(prefix + "feed_forward_length", 48);
      writer.SetUint32(prefix + "attention.head_count", 4);
      writer.SetUint32(prefix + "attention.head_count_kv", 2);
    }
    if (more) more(writer, prefix);
    for (const auto& [name, values] : factors) {
      const std::vector<uint64_t> shape = {values.size()};
      EXPECT_TRUE(writer.AddTensor(name, Format::kF32, shape));
    }
    const std::vector<uint64_t> shape = {10, 32};
    EXPECT_TRUE(writer.AddTensor("token_embd.weight", Format::kF32, shape));
    const auto path = dir_.path() / "model.gguf";
    auto stream = writer.Begin(path).value();
    for (const auto& [name, values] : factors) {
      EXPECT_TRUE(stream.Append(std::as_bytes(std::span(values))));
    }
    const std::vector<float> embedding(320, 0);
    EXPECT_TRUE(stream.Append(std::as_bytes(std::span(embedding))));
    EXPECT_TRUE(stream.Finish());
    const GgufFile file = GgufFile::Open(path).value();
    return ReadGgufConfig(file, *FindArchitecture(architecture).value());
  }

  static std::vector<int> Windows(const ModelConfig& config) {
    std::vector<int> windows;
    for (const LayerConfig& layer : config.layers) windows.push_back(layer.window);
    return windows;
  }

  testing::TempDir dir_;
  bool per_layer_ = false;
};

TEST_F(GgufConfig, Gemma3HasTwoRopesAndEverySixthLayerGlobal) {
  const auto config = Read("gemma3", 7, [](GgufWriter& writer, const std::string& prefix) {
                        writer.SetUint32(prefix + "attention.sliding_window", 512);
                        writer.SetFloat32(prefix + "rope.freq_base", 1e6F);
                        writer.SetString(prefix + "rope.scaling.type", "linear");
                        writer.SetFloat32(prefix + "rope.scaling.factor", 8);
                      }).value();
  EXPECT_EQ(Windows(config), (std::vector<int>{512, 512, 512, 512, 512, 0, 512}));
  ASSERT_EQ(config.ropes.size(), 2U);
  EXPECT_EQ(config.ropes[0].theta, 1e6);
  EXPECT_EQ(config.ropes[0].scaling, RopeScaling::kLinear);
  EXPECT_EQ(config.ropes[0].factor, 8);
  EXPECT_EQ(config.ropes[1].theta, 10000);
  EXPECT_EQ(config.ropes[1].scaling, RopeScaling::kNone);
  EXPECT_EQ(config.layers[5].rope, 0);
  EXPECT_EQ(config.layers[6].rope, 1);
  EXPECT_EQ(config.embedding_scale, std::sqrt(32.0F));
  EXPECT_FALSE(config.norm_plus_one);  // folded in by the converter
}

TEST_F(GgufConfig, PatternsOfTheFile) {
  const auto number = Read("gemma3", 4, [](GgufWriter& writer, const std::string& prefix) {
                        writer.SetUint32(prefix + "attention.sliding_window", 64);
                        writer.SetUint32(prefix + "attention.sliding_window_pattern", 2);
                        writer.SetFloat32(prefix + "rope.freq_base_swa", 5000);
                      }).value();
  EXPECT_EQ(Windows(number), (std::vector<int>{64, 0, 64, 0}));
  EXPECT_EQ(number.ropes[1].theta, 5000);
  const auto list =
      Read("gemma3", 4, [](GgufWriter& writer, const std::string& prefix) {
        writer.SetUint32(prefix + "attention.sliding_window", 64);
        writer.SetBools(prefix + "attention.sliding_window_pattern", {false, true, true, false});
      }).value();
  EXPECT_EQ(Windows(list), (std::vector<int>{0, 64, 64, 0}));
}

TEST_F(GgufConfig, Gemma2AlternatesAndCaps) {
  const ModelConfig config = Read("gemma2", 4).value();
  EXPECT_EQ(Windows(config), (std::vector<int>{4096, 0, 4096, 0}));
  EXPECT_EQ(config.attention_soft_cap, 50);
  EXPECT_EQ(config.final_soft_cap, 30);
}

TEST_F(GgufConfig, WindowOfMistral) {
  const auto config = Read("llama", 2, [](GgufWriter& writer, const std::string& prefix) {
                        writer.SetUint32(prefix + "attention.sliding_window", 1000);
                      }).value();
  EXPECT_EQ(Windows(config), (std::vector<int>{1000, 1000}));
  EXPECT_TRUE(config.ropes[0].interleaved);
}

TEST_F(GgufConfig, Smollm3HasLayersWithoutRotation) {
  const ModelConfig config = Read("smollm3", 5).value();
  EXPECT_EQ(config.layers[2].rope, 0);
  EXPECT_EQ(config.layers[3].rope, -1);
  EXPECT_EQ(config.layers[4].rope, 0);
}

TEST_F(GgufConfig, LongRopeByItsTensors) {
  const std::pair<std::string, std::vector<float>> factors[] = {
      {"rope_factors_long.weight", {1, 2, 4}}, {"rope_factors_short.weight", {1, 1.5F, 2}}};
  const auto config = Read(
      "phi3", 2,
      [](GgufWriter& writer, const std::string& prefix) {
        writer.SetUint32(prefix + "rope.dimension_count", 6);
        writer.SetUint32(prefix + "rope.scaling.original_context_length", 1024);
        writer.SetFloat32(prefix + "rope.scaling.attn_factor", 1.25F);
      },
      factors);
  ASSERT_TRUE(config) << config.error().message;
  const RopeConfig& rope = config->ropes[0];
  EXPECT_EQ(rope.scaling, RopeScaling::kLongRope);
  EXPECT_EQ(rope.dims, 6);
  EXPECT_EQ(rope.original_context, 1024);
  EXPECT_EQ(rope.attention_factor, 1.25);
  EXPECT_EQ(rope.long_factor, (std::vector<double>{1, 2, 4}));
  EXPECT_EQ(rope.short_factor, (std::vector<double>{1, 1.5, 2}));
  EXPECT_FALSE(Read("phi3", 2, {}, factors)) << "8 channels need 4 factors";
}

TEST_F(GgufConfig, YarnMultipliesItsAttentionFactor) {
  const auto config = Read("llama", 1, [](GgufWriter& writer, const std::string& prefix) {
                        writer.SetString(prefix + "rope.scaling.type", "yarn");
                        writer.SetFloat32(prefix + "rope.scaling.factor", 4);
                        writer.SetUint32(prefix + "rope.scaling.original_context_length", 1024);
                        writer.SetFloat32(prefix + "rope.scaling.attn_factor", 0.5F);
                      }).value();
  EXPECT_EQ(config.ropes[0].scaling, RopeScaling::kYarn);
  EXPECT_EQ(config.ropes[0].attention_factor, 0);
  EXPECT_EQ(config.ropes[0].attention_multiplier, 0.5);
  EXPECT_EQ(config.ropes[0].original_context, 1024);
}

TEST_F(GgufConfig, UnknownScalingIsRefused) {
  const auto config = Read("llama", 1, [](GgufWriter& writer, const std::string& prefix) {
    writer.SetString(prefix + "rope.scaling.type", "spiral");
  });
  ASSERT_FALSE(config);
  EXPECT_NE(config.error().message.find("'spiral'"), std::string::npos) << config.error().message;
}

TEST_F(GgufConfig, NumbersPerLayerMustBeEqual) {
  per_layer_ = true;
  const auto read = [&](std::vector<int32_t> heads) {
    return Read("llama", 2, [&](GgufWriter& writer, const std::string& prefix) {
      writer.SetUint32(prefix + "feed_forward_length", 48);
      writer.SetInt32s(prefix + "attention.head_count", heads);
      writer.SetInt32s(prefix + "attention.head_count_kv", std::vector<int32_t>{2, 2});
    });
  };
  const auto equal = read({4, 4});
  ASSERT_TRUE(equal) << equal.error().message;
  EXPECT_EQ(equal->heads, 4);
  EXPECT_EQ(equal->kv_heads, 2);
  const auto different = read({4, 2});
  ASSERT_FALSE(different);
  EXPECT_NE(different.error().message.find("differs between layers"), std::string::npos);
}

}  // namespace
}  // namespace nibble
