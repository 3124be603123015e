#include <algorithm>
#include <cmath>
#include <string>

#include "tests/model/npz.h"
#include "tests/model/runner.h"

namespace nibble::testing {
namespace {

// Models of ../shared/data/models/hf-320 with log-probabilities and logits from a float64 forward
// of transformers: 320 tokens, ten pages, several windows.
class Hf320 : public ::testing::TestWithParam<std::string> {};

TEST_P(Hf320, EqualsTransformers) {
  NIBBLE_SHARED_OR_SKIP(folder, "models/hf-320/" + GetParam());
  const JsonDocument golden = JsonDocument::ReadFile((folder / "golden.json").string()).value();
  const Ids ids = ReadIds(golden.root().Get("ids").value());
  const std::vector<double> expected = ReadDoubles(golden.root().Get("next_logprob").value());
  Runner runner(folder);
  ASSERT_TRUE(runner.ok());
  const int vocabulary = runner.decoder().config().vocabulary;
  const std::vector<float> logits = runner.Logits(ids);

  double worst = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double found = LogProbability(Row(logits, static_cast<int>(i), vocabulary), ids[i + 1]);
    worst = std::max(worst, std::abs(found - expected[i]));
    ASSERT_NEAR(found, expected[i], 1e-4) << "position " << i;
  }
  RecordProperty("worst_logprob_error", std::to_string(worst));

  auto arrays = ReadNpz(folder / "golden.npz");
  const std::vector<double>& positions = arrays["positions"].values;
  ASSERT_FALSE(positions.empty());
  for (size_t p = 0; p < positions.size(); ++p) {
    const std::span<const float> row = Row(logits, static_cast<int>(positions[p]), vocabulary);
    for (size_t i = 0; i < row.size(); ++i) {
      const double reference = arrays["logits"].values[p * row.size() + i];
      ASSERT_NEAR(row[i], reference, 2e-4) << "position " << positions[p] << " token " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Hf320,
                         ::testing::Values("llama", "llama_rope_linear", "llama_rope_llama3",
                                           "llama_rope_yarn", "llama_tied_bias", "qwen2", "qwen3",
                                           "gemma2", "gemma3", "phi3", "gpt2", "smollm3"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace nibble::testing
