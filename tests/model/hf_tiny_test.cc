#include <cmath>
#include <string>

#include "tests/model/runner.h"

namespace nibble::testing {
namespace {

namespace fs = std::filesystem;

// Every logit of every sequence of a "<name>_logits.json".
void ExpectLogits(Runner& runner, const fs::path& golden_path, double tolerance) {
  ASSERT_TRUE(runner.ok());
  const JsonDocument golden = JsonDocument::ReadFile(golden_path.string()).value();
  const JsonArray sequences = golden.root().Get("sequences").value().AsArray().value();
  const JsonArray logits = golden.root().Get("logits").value().AsArray().value();
  ASSERT_EQ(sequences.size(), logits.size());
  ASSERT_FALSE(sequences.empty());
  const int vocabulary = runner.decoder().config().vocabulary;
  auto rows_of = logits.begin();
  for (const JsonValue sequence : sequences) {
    const Ids ids = ReadIds(sequence);
    const std::vector<float> found = runner.Logits(ids);
    const JsonArray rows = (*rows_of).AsArray().value();
    ++rows_of;
    ASSERT_EQ(rows.size(), ids.size());
    int position = 0;
    for (const JsonValue row : rows) {
      const std::vector<double> expected = ReadDoubles(row);
      ASSERT_EQ(expected.size(), static_cast<size_t>(vocabulary));
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(Row(found, position, vocabulary)[i], expected[i], tolerance)
            << "position " << position << " token " << i;
      }
      ++position;
    }
  }
}

// Random models of a few thousand weights, whose config.json leave most keys out.
class HfTiny : public ::testing::TestWithParam<std::string> {};

TEST_P(HfTiny, EqualsTransformers) {
  NIBBLE_SHARED_OR_SKIP(data, "models/hf-tiny");
  const std::string name = "tiny_" + GetParam();
  LinkedFolder folder;
  folder.Link(data / (name + ".safetensors"), "model.safetensors");
  folder.Link(data / (name + "_config.json"), "config.json");
  Runner runner(folder.path());
  ExpectLogits(runner, data / (name + "_logits.json"), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Models, HfTiny,
                         ::testing::Values("llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3",
                                           "smollm2"),
                         [](const auto& info) { return info.param; });

TEST(HfTinyFiles, Gpt2WithoutPrefix) {
  NIBBLE_SHARED_OR_SKIP(data, "models/hf-tiny");
  LinkedFolder folder;
  folder.Link(data / "tiny_gpt2.safetensors", "model.safetensors");
  folder.Write("config.json", R"({"model_type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 8,
                                  "n_ctx": 16, "n_positions": 16, "vocab_size": 11})");
  Runner runner(folder.path());
  ExpectLogits(runner, data / "tiny_gpt2_logits.json", 1e-4);
}

TEST(HfTinyFiles, ShardedLlama) {
  NIBBLE_SHARED_OR_SKIP(data, "models/hf-tiny");
  LinkedFolder folder;
  for (const std::string part : {"1", "2"}) {
    const std::string shard = "tiny_llama-0000" + part + "-of-00002.safetensors";
    folder.Link(data / shard, shard);
  }
  folder.Link(data / "tiny_llama.safetensors.index.json", "model.safetensors.index.json");
  folder.Link(data / "tiny_llama_config.json", "config.json");
  Runner runner(folder.path());
  ExpectLogits(runner, data / "tiny_llama_logits.json", 1e-4);
}

TEST(HfTinyFiles, GgufF32Llama) {
  NIBBLE_SHARED_OR_SKIP(data, "models/hf-tiny");
  Runner runner(data / "tiny_llama_f32.gguf");
  ExpectLogits(runner, data / "tiny_llama_logits.json", 1e-4);
}

}  // namespace
}  // namespace nibble::testing
