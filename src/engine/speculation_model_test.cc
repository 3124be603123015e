// Speculation over a real model and real pages: the same tokens and log-probabilities as without.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "engine/engine.h"
#include "engine/event_stream.h"
#include "tests/support/test_data.h"
#include "tokenizer/tokenizer.h"

namespace nibble {
namespace {

struct Outcome {
  std::vector<std::vector<std::pair<int, float>>> tokens;  // [request] with log-probabilities
  int64_t accepted = 0;
  int64_t drafted = 0;
};

// All at once.
Outcome AskAll(const std::filesystem::path& path, const EngineOptions& options,
               const std::vector<Request>& requests) {
  Outcome outcome;
  auto engine = Engine::Create(path, options);
  EXPECT_TRUE(engine) << engine.error().message;
  if (!engine) return outcome;
  std::vector<std::shared_ptr<EventStream>> streams;
  for (const Request& request : requests) {
    streams.push_back(std::make_shared<EventStream>());
    EXPECT_TRUE((*engine)->Submit(request, streams.back()));
  }
  for (const auto& stream : streams) {
    const Answer answer = Collect(*stream)[0];
    std::vector<std::pair<int, float>>& own = outcome.tokens.emplace_back();
    for (const TokenEvent& token : answer.tokens) own.emplace_back(token.id.value(), token.logprob);
    outcome.accepted += answer.finish.usage.accepted_tokens;
    outcome.drafted += answer.finish.usage.drafted_tokens;
  }
  return outcome;
}

TEST(SpeculationOverAModel, GivesTheSameBitsInEveryCacheFormat) {
  NIBBLE_SHARED_OR_SKIP(path, "models/stories260K/tinyllamas-stories-260k-f32.gguf");
  for (const KvFormat format :
       {KvFormat::kF16, KvFormat::kInt8, KvFormat::kFp8, KvFormat::kInt4, KvFormat::kKivi2}) {
    EngineOptions options{
        .threads = 1, .act = Act::kInt8, .kv = {.k = format, .v = format}, .max_context = 400};
    std::vector<Request> requests;
    {
      auto engine = Engine::Create(path, options);
      ASSERT_TRUE(engine) << engine.error().message;
      const Tokenizer& tokenizer = (*engine)->tokenizer();
      const auto told = tokenizer.Encode(
          "Once upon a time there was a little girl named Lily. She had a red ball. "
          "Once upon a time there was a little girl named Lily. She had a red");
      ASSERT_TRUE(told);
      for (int i = 0; i < 3; ++i) {
        Request request{.prompt = *told, .max_tokens = 150, .ignore_end = true, .logprobs = 0};
        request.prompt.resize(told->size() - static_cast<size_t>(7 * i));
        request.sampling = {.temperature = 0.4F * static_cast<float>(i), .seed = 5};
        requests.push_back(std::move(request));
      }
    }
    const Outcome expected = AskAll(path, options, requests);
    EXPECT_EQ(expected.drafted, 0);
    // How many guesses there are depends on prices, which are measured.
    options.speculation.ngram = true;
    const Outcome ngram = AskAll(path, options, requests);
    EXPECT_EQ(ngram.tokens, expected.tokens);
    RecordProperty("ngram_" + options.kv.Name(), std::to_string(ngram.accepted));
    options.speculation = {.ngram = false, .draft = path};
    const Outcome drafted = AskAll(path, options, requests);
    EXPECT_EQ(drafted.tokens, expected.tokens);
    RecordProperty("draft_" + options.kv.Name(), std::to_string(drafted.accepted));
  }
}

}  // namespace
}  // namespace nibble
