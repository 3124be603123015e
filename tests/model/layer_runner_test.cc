#include "model/layer_runner.h"

#include <map>
#include <string>

#include "kernels/kernel_table.h"
#include "model/config/model_file.h"
#include "platform/cpu.h"
#include "tests/model/runner.h"

namespace nibble::testing {
namespace {

class LayerByLayer : public ::testing::TestWithParam<std::string> {};

std::vector<TokenId> TokensOf(const Ids& ids) {
  std::vector<TokenId> tokens;
  for (const int id : ids) tokens.emplace_back(id);
  return tokens;
}

// The activations of a sequence.
struct Activations {
  Activations(const ModelConfig& config, size_t tokens)
      : hidden(tokens * static_cast<size_t>(config.width)),
        context(tokens * static_cast<size_t>(config.heads * config.head_dim)),
        rows(static_cast<int>(tokens)),
        view{.hidden = DenseView(hidden.data(), rows, config.width),
             .context = DenseView(context.data(), rows, config.heads * config.head_dim)} {}
  std::vector<float> hidden, context;
  int rows;
  LayerSequence view;
};

// Logits of two sequences, layer by layer.
std::vector<std::vector<float>> RunLayers(const ModelFile& file, const std::vector<Ids>& ids) {
  const KernelTable& kernels = KernelsFor(ChooseIsa().value());
  ThreadPool pool(2);
  auto runner = LayerRunner::Create(file, static_cast<int>(ids[0].size()), kernels, pool).value();
  std::vector<Activations> all;
  for (const Ids& sequence : ids) {
    all.emplace_back(file.config(), sequence.size());
    runner->Embed(TokensOf(sequence), all.back().view.hidden);
  }
  for (int layer = 0; layer < static_cast<int>(file.config().layers.size()); ++layer) {
    EXPECT_TRUE(runner->BeginLayer(layer));
    for (const LayerStage stage : kLayerStages) {
      for (Activations& one : all) {
        const MatrixView<const float> input = runner->Input(stage, one.view);
        EXPECT_EQ(input.rows, one.rows);
      }
      EXPECT_TRUE(runner->Load(stage));
      if (stage == LayerStage::kGateUp) runner->Drop(LayerStage::kQkv);
    }
    for (Activations& one : all) runner->Finish(one.view);
  }
  std::vector<std::vector<float>> logits;
  const auto vocabulary = static_cast<size_t>(file.config().vocabulary);
  for (Activations& one : all) {
    std::vector<float>& out = logits.emplace_back(static_cast<size_t>(one.rows) * vocabulary);
    EXPECT_TRUE(runner->Head(one.view.hidden, [&](int first, MatrixView<const float> block) {
      for (int r = 0; r < block.rows; ++r) {
        std::copy_n(block.row(r), block.cols,
                    out.data() + static_cast<size_t>(r) * vocabulary + first);
      }
    }));
  }
  return logits;
}

// The same bits as the decoder that holds the whole model.
TEST_P(LayerByLayer, EqualsTheDecoder) {
  NIBBLE_SHARED_OR_SKIP(folder, "models/hf-320/" + GetParam());
  const ModelFile file = ModelFile::Open(folder).value();
  const JsonDocument golden = JsonDocument::ReadFile((folder / "golden.json").string()).value();
  const Ids ids = ReadIds(golden.root().Get("ids").value());
  const Ids other(ids.begin() + 40, ids.begin() + 75);
  Runner runner(folder);
  ASSERT_TRUE(runner.ok());
  const auto found = RunLayers(file, {ids, other});
  EXPECT_TRUE(found[0] == runner.Logits(ids));
  EXPECT_TRUE(found[1] == runner.Logits(other));
}

INSTANTIATE_TEST_SUITE_P(Models, LayerByLayer,
                         ::testing::Values("llama", "llama_rope_yarn", "llama_tied_bias", "qwen2",
                                           "qwen3", "gemma2", "gemma3", "phi3", "gpt2", "smollm3"),
                         [](const auto& info) { return info.param; });

TEST(LayerByLayer, QuantisedWeightsComputeAsUnderActF32) {
  NIBBLE_PULLED_OR_SKIP(path, "SmolLM2-135M-Instruct.Q4_1.gguf");
  const ModelFile file = ModelFile::Open(path).value();
  Ids ids;
  for (int i = 0; i < 48; ++i) ids.push_back((i * 977 + 11) % file.config().vocabulary);
  Runner runner(path);
  ASSERT_TRUE(runner.ok());
  EXPECT_TRUE(RunLayers(file, {ids})[0] == runner.Logits(ids));
}

}  // namespace
}  // namespace nibble::testing
