// The engine over real model files.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "container/json.h"
#include "engine/engine.h"
#include "engine/event_stream.h"
#include "tests/support/test_data.h"
#include "tokenizer/tokenizer.h"

namespace nibble {
namespace {

constexpr KvFormats kF32Pages{.k = KvFormat::kF32, .v = KvFormat::kF32};

std::unique_ptr<Engine> Load(const std::filesystem::path& path, const EngineOptions& options) {
  auto engine = Engine::Create(path, options);
  EXPECT_TRUE(engine) << engine.error().message;
  return engine ? std::move(*engine) : nullptr;
}

std::shared_ptr<EventStream> Submit(Engine& engine, const Request& request) {
  auto stream = std::make_shared<EventStream>(request.n);
  const auto id = engine.Submit(request, stream);
  EXPECT_TRUE(id) << id.error().message;
  return stream;
}

Answer Ask(Engine& engine, const Request& request) { return Collect(*Submit(engine, request))[0]; }

std::vector<int> TokensOf(const Answer& answer) {
  std::vector<int> ids;
  for (const TokenEvent& event : answer.tokens) ids.push_back(event.id.value());
  return ids;
}

// The bits of all rows.
class BitsSink : public PositionLogitsSink {
 public:
  void Rows(Position first, MatrixView<float> logits) override {
    EXPECT_EQ(first.value(), rows);
    for (int r = 0; r < logits.rows; ++r) {
      const size_t size = bits.size();
      bits.resize(size + static_cast<size_t>(logits.cols));
      std::memcpy(bits.data() + size, logits.row(r), sizeof(float) * logits.cols);
    }
    rows += logits.rows;
  }
  int rows = 0;
  std::vector<uint32_t> bits;
};

TEST(Stories260K, TwoHundredGreedyTokensGiveTheExpectedBytes) {
  NIBBLE_SHARED_OR_SKIP(path, "models/stories260K/tinyllamas-stories-260k-f32.gguf");
  NIBBLE_SHARED_OR_SKIP(expected, "models/stories260K/expected_greedy_200.txt");
  const auto engine = Load(path, {.act = Act::kF32, .kv = kF32Pages});
  ASSERT_TRUE(engine);
  ASSERT_TRUE(engine->tokenizer().bos());
  const Answer answer =
      Ask(*engine, {.prompt = {*engine->tokenizer().bos()}, .max_tokens = 200, .ignore_end = true});
  const std::string text = testing::ReadFile(expected);
  EXPECT_EQ(answer.text, text);
  EXPECT_EQ(answer.finish.usage.generated_tokens, 200);
}

// A question with a prompt and an answer that both cross several pages.
Request Question(int vocabulary, int length, uint64_t seed, int answer) {
  Request request{.max_tokens = answer, .ignore_end = true};
  uint64_t x = seed + 1;
  for (int i = 0; i < length; ++i) {
    x = x * 6364136223846793005ULL + 1442695040888963407ULL;
    request.prompt.emplace_back(static_cast<int>((x >> 33) % static_cast<uint64_t>(vocabulary)));
  }
  request.sampling = {.temperature = 0.9F, .top_k = 50, .top_p = 0.95F, .seed = seed};
  return request;
}

struct Bits {
  std::vector<int> tokens;
  std::vector<uint32_t> logits;
  bool operator==(const Bits&) const = default;
};

Bits Alone(Engine& engine, Request request) {
  BitsSink sink;
  request.logits = &sink;
  Bits bits;
  bits.tokens = TokensOf(Ask(engine, request));
  bits.logits = std::move(sink.bits);
  return bits;
}

// All at once; every stream and sink by itself.
std::vector<Bits> Together(Engine& engine, std::vector<Request> requests) {
  std::vector<BitsSink> sinks(requests.size());
  std::vector<std::shared_ptr<EventStream>> streams;
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].logits = &sinks[i];
    streams.push_back(Submit(engine, requests[i]));
  }
  std::vector<Bits> all;
  for (size_t i = 0; i < requests.size(); ++i) {
    all.push_back({TokensOf(Collect(*streams[i])[0]), {}});
    all.back().logits = std::move(sinks[i].bits);
  }
  return all;
}

// Prompts whole, in chunks and together, with 1 and 4 threads, and after preemption.
void ExpectSameBits(const std::filesystem::path& path, EngineOptions options, int prompt,
                    int answer) {
  options.max_context = prompt + answer;
  options.threads = 1;
  std::vector<Request> requests;
  std::vector<Bits> expected;
  {
    const auto engine = Load(path, options);
    ASSERT_TRUE(engine);
    for (int i = 0; i < 4; ++i) {
      requests.push_back(Question(engine->config().vocabulary, prompt - 41 * i,
                                  static_cast<uint64_t>(i), answer - 7 * i));
      expected.push_back(Alone(*engine, requests.back()));
    }
  }
  for (int max_rows : {1, 7, 32}) {
    EngineOptions chunked = options;
    chunked.max_rows = max_rows;
    chunked.threads = 4;
    const auto engine = Load(path, chunked);
    ASSERT_TRUE(engine);
    EXPECT_TRUE(Alone(*engine, requests[0]) == expected[0]) << max_rows;
  }
  for (int threads : {1, 4}) {
    EngineOptions batched = options;
    batched.threads = threads;
    batched.max_rows = 64;
    const auto engine = Load(path, batched);
    ASSERT_TRUE(engine);
    EXPECT_TRUE(Together(*engine, requests) == expected) << threads;
  }
}

TEST(SameBits, Stories260K) {
  NIBBLE_SHARED_OR_SKIP(path, "models/stories260K/tinyllamas-stories-260k-f32.gguf");
  for (Act act : {Act::kF32, Act::kInt8}) ExpectSameBits(path, {.act = act}, 300, 60);
}

TEST(SameBits, PastASlidingWindow) {
  NIBBLE_SHARED_OR_SKIP(path, "models/hf-320/gemma3");
  for (Act act : {Act::kF32, Act::kInt8}) {
    ExpectSameBits(path, {.act = act, .kv = kF32Pages}, 300, 60);
  }
}

TEST(SameBits, AfterPreemption) {
  NIBBLE_SHARED_OR_SKIP(path, "models/stories260K/tinyllamas-stories-260k-f32.gguf");
  EngineOptions options{.threads = 2, .max_context = 200};
  std::vector<Request> requests;
  std::vector<Bits> expected;
  size_t page_bytes = 0;
  {
    const auto engine = Load(path, options);
    ASSERT_TRUE(engine);
    page_bytes = engine->plan().kv_bytes_per_token * 32;
    for (int i = 0; i < 4; ++i) {
      requests.push_back(
          Question(engine->config().vocabulary, 20 + i, static_cast<uint64_t>(i), 150));
      expected.push_back(Alone(*engine, requests.back()));
    }
  }
  // All four begin; seven pages hold little more than one of them at its end.
  options.kv_memory = 7 * page_bytes;
  const auto engine = Load(path, options);
  ASSERT_TRUE(engine);
  EXPECT_TRUE(Together(*engine, requests) == expected);
  EXPECT_GT(engine->Stats().preemptions, 2);
}

std::vector<int> IdsOf(JsonValue array) {
  std::vector<int> ids;
  const JsonArray elements = *array.AsArray();
  for (JsonValue id : elements) ids.push_back(static_cast<int>(*id.AsInt()));
  return ids;
}

// Greedy continuations of the reference, an independent f32 implementation.
void ExpectGreedy(const std::filesystem::path& model, const std::filesystem::path& reference) {
  const auto document = JsonDocument::ReadFile(reference.string());
  ASSERT_TRUE(document) << document.error().message;
  const auto engine =
      Load(model, {.act = Act::kF32, .kv = kF32Pages, .max_context = 2048, .max_rows = 256});
  ASSERT_TRUE(engine);
  int compared = 0;
  const JsonArray sequences = *document->root().Get("sequences")->AsArray();
  for (JsonValue sequence : sequences) {
    const auto greedy = sequence.Find("greedy");
    if (!greedy || greedy->is_null()) continue;
    const std::vector<int> expected = IdsOf(*greedy);
    if (expected.empty()) continue;
    Request request{.max_tokens = static_cast<int>(expected.size()), .ignore_end = true};
    for (int id : IdsOf(*sequence.Find("ids"))) request.prompt.emplace_back(id);
    EXPECT_EQ(TokensOf(Ask(*engine, request)), expected) << sequence.Find("name")->ToString();
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

TEST(Greedy, SmolLm2) {
  NIBBLE_SHARED_OR_SKIP(reference, "models/real/smollm2-135m.json");
  NIBBLE_PULLED_OR_SKIP(model, "SmolLM2-135M-Instruct.Q4_1.gguf");
  ExpectGreedy(model, reference);
}

TEST(Greedy, Gemma3) {
  NIBBLE_SHARED_OR_SKIP(reference, "models/real/gemma3-270m.json");
  NIBBLE_PULLED_OR_SKIP(model, "gemma-3-270m-q4_k_m.gguf");
  ExpectGreedy(model, reference);
}

}  // namespace
}  // namespace nibble
