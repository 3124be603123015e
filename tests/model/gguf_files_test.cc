#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "tests/model/llama_reference.h"
#include "tests/model/npz.h"
#include "tests/model/runner.h"

namespace nibble::testing {
namespace {

// Gate of 1e-4 for the float formats; the same for Q8_0, whose weights both sides decode exactly.
class TinyGguf : public ::testing::TestWithParam<std::string> {};

TEST_P(TinyGguf, EqualsDoubleForward) {
  NIBBLE_SHARED_OR_SKIP(path, "models/hf-tiny/tiny_llama_" + GetParam() + ".gguf");
  Runner runner(path);
  ASSERT_TRUE(runner.ok());
  const ModelConfig& config = runner.decoder().config();
  Ids ids(static_cast<size_t>(config.context_length));
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<int>(i * 5 + 3) % config.vocabulary;
  }
  const std::vector<double> expected = LlamaReferenceLogits(path, ids);
  const std::vector<float> found = runner.Logits(ids);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 1e-4) << i;
}

INSTANTIATE_TEST_SUITE_P(Files, TinyGguf, ::testing::Values("f32", "f16", "q8"),
                         [](const auto& info) { return info.param; });

// A GGUF file of version 1 (32-bit counts).
TEST(Stories260K, GreedyTokensAndLogits) {
  NIBBLE_SHARED_OR_SKIP(folder, "models/stories260K");
  const JsonDocument golden =
      JsonDocument::ReadFile((folder / "golden_greedy_logits.json").string()).value();
  const Ids greedy = ReadIds(golden.root().Get("greedy_ids").value());
  const int bos = static_cast<int>(golden.root().GetInt("bos").value());
  Runner runner(folder / "tinyllamas-stories-260k-f32.gguf");
  ASSERT_TRUE(runner.ok());
  EXPECT_EQ(runner.Greedy({bos}, 200), greedy);

  Ids ids = {bos};
  ids.insert(ids.end(), greedy.begin(), greedy.end() - 1);
  const std::vector<float> logits = runner.Logits(ids);
  const int vocabulary = runner.decoder().config().vocabulary;
  const JsonArray entries = golden.root().Get("logits").value().AsArray().value();
  ASSERT_FALSE(entries.empty());
  for (const JsonValue entry : entries) {
    const int position = static_cast<int>(entry.GetInt("pos").value());
    ASSERT_EQ(entry.GetInt("input_id").value(), ids[static_cast<size_t>(position)]);
    const std::vector<double> expected = ReadDoubles(entry.Get("logits").value());
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(Row(logits, position, vocabulary)[i], expected[i], 1e-4)
          << "position " << position << " token " << i;
    }
  }
}

// Real quantised models against transformers on exactly these weights.
struct RealModel {
  std::string name;
  std::string file;
};

class Real : public ::testing::TestWithParam<RealModel> {};

void ExpectTop8(const Ids& expected, const std::vector<double>& values,
                std::span<const float> row) {
  std::vector<int> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::partial_sort(order, order.begin() + 8, [&](int a, int b) {
    return row[static_cast<size_t>(a)] > row[static_cast<size_t>(b)];
  });
  for (size_t i = 0; i < 7; ++i) {
    // Ranks count where both neighbours are further away than rounding reaches.
    const bool above = i == 0 || values[i - 1] - values[i] > 1e-3;
    if (above && values[i] - values[i + 1] > 1e-3) {
      EXPECT_EQ(order[i], expected[i]) << "rank " << i;
    }
  }
}

void ExpectSequence(Runner& runner, JsonValue sequence, const std::vector<double>& last) {
  const Ids ids = ReadIds(sequence.Get("ids").value());
  const std::vector<double> next = ReadDoubles(sequence.Get("next_logprob").value());
  std::vector<Ids> top_ids;
  std::vector<std::vector<double>> top_logits;
  const JsonArray id_rows = sequence.Get("top8_ids").value().AsArray().value();
  const JsonArray logit_rows = sequence.Get("top8_logits").value().AsArray().value();
  for (const JsonValue row : id_rows) top_ids.push_back(ReadIds(row));
  for (const JsonValue row : logit_rows) top_logits.push_back(ReadDoubles(row));
  ASSERT_EQ(next.size() + 1, ids.size());
  double worst = 0;
  runner.Visit(ids, 512, [&](int position, std::span<const float> logits) {
    const auto i = static_cast<size_t>(position);
    SCOPED_TRACE(position);
    ExpectTop8(top_ids[i], top_logits[i], logits);
    if (i < next.size()) {
      worst = std::max(worst, std::abs(LogProbability(logits, ids[i + 1]) - next[i]));
      return;
    }
    ASSERT_EQ(last.size(), logits.size());
    for (size_t t = 0; t < last.size(); ++t) ASSERT_NEAR(logits[t], last[t], 1e-3) << t;
  });
  EXPECT_LE(worst, 1e-3) << "largest error of a log-probability";
  if (const std::optional<JsonValue> list = sequence.Find("greedy")) {
    const Ids greedy = ReadIds(*list);
    EXPECT_EQ(runner.Greedy(ids, static_cast<int>(greedy.size())), greedy);
  }
}

TEST_P(Real, EqualsTransformers) {
  NIBBLE_SHARED_OR_SKIP(golden_path, "models/real/" + GetParam().name + ".json");
  NIBBLE_SHARED_OR_SKIP(last_path, "models/real/" + GetParam().name + ".last.npz");
  NIBBLE_PULLED_OR_SKIP(model, GetParam().file);
  const JsonDocument golden = JsonDocument::ReadFile(golden_path.string()).value();
  auto last = ReadNpz(last_path);
  Runner runner(model);
  ASSERT_TRUE(runner.ok());
  const JsonArray sequences = golden.root().Get("sequences").value().AsArray().value();
  for (const JsonValue sequence : sequences) {
    const std::string name(sequence.GetString("name").value());
    SCOPED_TRACE(name);
    ExpectSequence(runner, sequence, last[name + "_last"].values);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, Real,
    ::testing::Values(RealModel{"smollm2-135m", "SmolLM2-135M-Instruct.Q4_1.gguf"},
                      RealModel{"gemma3-270m", "gemma-3-270m-q4_k_m.gguf"}),
    [](const auto& info) { return info.param.name == "smollm2-135m" ? "SmolLM2" : "Gemma3"; });

}  // namespace
}  // namespace nibble::testing
