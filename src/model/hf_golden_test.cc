#include <algorithm>
#include <cmath>

#include "model/config/hf_config.h"
#include "model/rope_frequencies.h"
#include "tests/support/test_data.h"

namespace nibble {
namespace {

// What transformers itself makes of config.json files: tools/make_config_golden.py.
class HfGolden : public ::testing::Test {
 protected:
  static JsonDocument Read() {
    const auto path = testing::SourcePath("src/model/config/golden/hf_configs.json");
    return JsonDocument::ReadFile(path.string()).value();
  }
};

void ExpectSizes(const ModelConfig& config, JsonValue expect) {
  EXPECT_EQ(config.vocabulary, expect.GetInt("vocabulary").value());
  EXPECT_EQ(config.width, expect.GetInt("width").value());
  EXPECT_EQ(config.heads, expect.GetInt("heads").value());
  EXPECT_EQ(config.kv_heads, expect.GetInt("kv_heads").value());
  EXPECT_EQ(config.head_dim, expect.GetInt("head_dim").value());
  EXPECT_EQ(config.ffn_width, expect.GetInt("ffn_width").value());
  EXPECT_EQ(config.context_length, expect.GetInt("context").value());
  EXPECT_EQ(config.tied_embeddings, expect.GetBool("tied").value());
  EXPECT_FLOAT_EQ(config.norm_eps, static_cast<float>(expect.GetDouble("norm_eps").value()));
  EXPECT_FLOAT_EQ(config.attention_scale,
                  static_cast<float>(expect.GetDouble("attention_scale").value()));
  EXPECT_EQ(config.attention_soft_cap, expect.GetDouble("attention_cap").value());
  EXPECT_EQ(config.final_soft_cap, expect.GetDouble("final_cap").value());
}

void ExpectLayers(const ModelConfig& config, JsonValue expect) {
  const JsonArray windows = expect.Get("windows").value().AsArray().value();
  const JsonArray rotates = expect.Get("rotates").value().AsArray().value();
  ASSERT_EQ(config.layers.size(), windows.size());
  auto rotate = rotates.begin();
  size_t i = 0;
  for (const JsonValue window : windows) {
    EXPECT_EQ(config.layers[i].window, window.AsInt().value()) << "layer " << i;
    EXPECT_EQ(config.layers[i].rope >= 0, (*rotate).AsInt().value() != 0) << "layer " << i;
    ++rotate;
    ++i;
  }
}

void ExpectRope(const RopeConfig& rope, int max_context, JsonValue expect) {
  const RopeFrequencies found = ComputeRopeFrequencies(rope, max_context);
  EXPECT_NEAR(found.factor, expect.GetDouble("factor").value(), 1e-6);
  const JsonArray expected = expect.Get("inv_freq").value().AsArray().value();
  ASSERT_EQ(found.inv_freq.size(), expected.size());
  size_t i = 0;
  for (const JsonValue value : expected) {
    const double reference = value.AsDouble().value();
    // transformers computes them in float32.
    EXPECT_NEAR(found.inv_freq[i], reference, 2e-6 * reference) << "pair " << i;
    ++i;
  }
}

TEST_F(HfGolden, EqualsTransformers) {
  const JsonDocument document = Read();
  const JsonArray cases = document.root().Get("cases").value().AsArray().value();
  ASSERT_GT(cases.size(), 30U);
  for (const JsonValue entry : cases) {
    const JsonValue source = entry.Get("config").value();
    const JsonValue expect = entry.Get("expect").value();
    SCOPED_TRACE(source.ToString());
    const auto found = ReadHfConfig(source);
    ASSERT_TRUE(found) << found.error().message;
    const ModelConfig& config = found->config;
    ExpectSizes(config, expect);
    ExpectLayers(config, expect);
    if (config.ropes.empty()) continue;
    const RopeConfig& full = config.ropes[0];
    const int within = std::max(full.original_context, 1);
    ExpectRope(full, within, expect.Get("full").value());
    if (const auto beyond = expect.Find("long")) ExpectRope(full, within + 1, *beyond);
    if (const auto sliding = expect.Find("sliding")) {
      ASSERT_EQ(config.ropes.size(), 2U);
      ExpectRope(config.ropes[1], within, *sliding);
      for (const LayerConfig& layer : config.layers) {
        EXPECT_EQ(layer.rope, layer.window > 0 ? 1 : 0);
      }
    }
  }
}

}  // namespace
}  // namespace nibble
