#include <cmath>
#include <cstring>

#include "container/json.h"
#include "engine/engine.h"
#include "eval/logits_file.h"
#include "eval/perplexity.h"
#include "tests/support/test_data.h"

namespace nibble {
namespace {

// The demonstration GPT with what transformers computes for 200 characters (tools/
// train_shakespeare.py wrote both).
class ShakespeareTest : public ::testing::Test {
 protected:
  void SetUp() override {
    EngineOptions options;
    options.act = Act::kF32;
    options.kv = {KvFormat::kF32, KvFormat::kF32};
    options.threads = 2;
    auto engine = Engine::Create(testing::SourcePath("models/shakespeare"), options);
    ASSERT_TRUE(engine) << engine.error().message;
    engine_ = *std::move(engine);
    const auto ids = Golden("ids");
    const JsonArray array = *ids.root().AsArray();
    for (const JsonValue id : array) {
      ids_.emplace_back(static_cast<int32_t>(*id.AsInt()));
    }
  }

  static JsonDocument Golden(const std::string& name) {
    auto document = JsonDocument::ReadFile(
        testing::SourcePath("tests/golden/shakespeare/" + name + ".json").string());
    EXPECT_TRUE(document);
    return *std::move(document);
  }

  // -log p of every next id, from the golden.
  std::vector<double> ExpectedLosses() const {
    const auto document = Golden("logprobs");
    std::vector<double> losses;
    const JsonArray rows = *document.root().AsArray();
    for (const JsonValue row : rows) {
      if (losses.size() + 1 == ids_.size()) break;
      int at = 0;
      const JsonArray values = *row.AsArray();
      for (const JsonValue value : values) {
        if (at++ == ids_[losses.size() + 1].value()) {
          losses.push_back(-*value.AsDouble());
          break;
        }
      }
    }
    return losses;
  }

  std::unique_ptr<Engine> engine_;
  std::vector<TokenId> ids_;
};

TEST_F(ShakespeareTest, GptqProtocolScoresEveryPrediction) {
  const std::vector<double> losses = ExpectedLosses();
  double sum = 0;
  for (const double loss : losses) sum += loss;
  PerplexityOptions options;
  options.windows.protocol = PerplexityProtocol::kGptq;
  options.windows.context = static_cast<int>(ids_.size());
  const auto result = MeasurePerplexity(*engine_, ids_, options);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->tokens, std::ssize(losses));
  EXPECT_EQ(result->chunks, 1);
  EXPECT_NEAR(std::log(result->perplexity), sum / static_cast<double>(losses.size()), 1e-5);
}

TEST_F(ShakespeareTest, LlamaProtocolScoresTheSecondHalf) {
  // Two equal windows, so that both halves of the text are the golden's text.
  std::vector<TokenId> twice = ids_;
  twice.insert(twice.end(), ids_.begin(), ids_.end());
  const std::vector<double> losses = ExpectedLosses();
  double sum = 0;
  double squares = 0;
  const size_t from = ids_.size() / 2;
  for (size_t i = from; i < losses.size(); ++i) {
    sum += losses[i];
    squares += losses[i] * losses[i];
  }
  const auto n = static_cast<double>(losses.size() - from);
  PerplexityOptions options;
  options.windows.context = static_cast<int>(ids_.size());
  int windows_seen = 0;
  options.progress = [&](int done, int total, double) {
    EXPECT_EQ(done, ++windows_seen);
    EXPECT_EQ(total, 2);
  };
  const auto result = MeasurePerplexity(*engine_, twice, options);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->tokens, static_cast<int64_t>(2 * n));
  EXPECT_EQ(windows_seen, 2);
  EXPECT_NEAR(std::log(result->perplexity), sum / n, 1e-5);
  const double variance = squares / n - sum / n * (sum / n);
  EXPECT_NEAR(result->standard_error / result->perplexity, std::sqrt(variance / (2 * n - 1)), 1e-5);
}

TEST_F(ShakespeareTest, RefusesTextsAndContextsThatDoNotFit) {
  PerplexityOptions options;
  options.windows.context = static_cast<int>(ids_.size());
  const auto short_text = MeasurePerplexity(*engine_, ids_, options);
  ASSERT_FALSE(short_text);
  EXPECT_EQ(short_text.error().kind, ErrorKind::kBadInput);
  EXPECT_NE(short_text.error().message.find(std::to_string(2 * ids_.size())), std::string::npos);
  options.windows.context = 1 << 20;
  EXPECT_FALSE(MeasurePerplexity(*engine_, ids_, options));
  options.windows.context = 1;
  EXPECT_FALSE(MeasurePerplexity(*engine_, ids_, options));
}

TEST_F(ShakespeareTest, BadIdsEndWithAnErrorAndNothingKeepsRunning) {
  std::vector<TokenId> bad(ids_);
  bad.insert(bad.end(), ids_.begin(), ids_.end());
  bad[ids_.size() + 3] = TokenId{65000};
  PerplexityOptions options;
  options.windows.context = static_cast<int>(ids_.size());
  const auto result = MeasurePerplexity(*engine_, bad, options);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("65000"), std::string::npos);
}

TEST_F(ShakespeareTest, LogitsFileIsANumpyMatrix) {
  const testing::TempDir folder;
  const auto path = folder.path() / "logits.npy";
  const auto status = WriteLogits(*engine_, ids_, path);
  ASSERT_TRUE(status) << status.error().message;
  const std::string bytes = testing::ReadFile(path);
  const auto vocabulary = static_cast<size_t>(engine_->config().vocabulary);
  const size_t header = bytes.size() - ids_.size() * vocabulary * sizeof(float);
  EXPECT_EQ(header % 64, 0U);
  EXPECT_EQ(bytes.substr(0, 6), "\x93NUMPY");
  const auto document = Golden("logprobs");
  size_t row_index = 0;
  const JsonArray rows = *document.root().AsArray();
  for (const JsonValue row : rows) {
    std::vector<float> logits(vocabulary);
    std::memcpy(logits.data(), bytes.data() + header + row_index * vocabulary * sizeof(float),
                vocabulary * sizeof(float));
    double total = 0;
    for (const float x : logits) total += std::exp(double{x});
    size_t at = 0;
    const JsonArray values = *row.AsArray();
    for (const JsonValue value : values) {
      EXPECT_NEAR(logits[at++] - std::log(total), *value.AsDouble(), 1e-4);
    }
    ++row_index;
  }
  EXPECT_EQ(row_index, ids_.size());
}

TEST_F(ShakespeareTest, LogitsFileThatCannotBeWrittenLeavesNothing) {
  const testing::TempDir folder;
  const auto path = folder.path() / "missing" / "logits.npy";
  EXPECT_FALSE(WriteLogits(*engine_, ids_, path));
  const std::vector<TokenId> bad = {TokenId{-1}};
  EXPECT_FALSE(WriteLogits(*engine_, bad, folder.path() / "bad.npy"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace nibble
