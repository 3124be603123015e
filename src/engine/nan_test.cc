// Models on disk whose weights hold NaN: a request must end with an error, whatever the arithmetic
// and the sampler, and the engine must go on.
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "container/gguf_writer.h"
#include "engine/engine.h"
#include "engine/event_stream.h"
#include "tests/support/test_data.h"

namespace nibble {
namespace {

constexpr int kVocabulary = 12;
constexpr int kWidth = 32;
// In models of PoisonedToken only this token's embedding is NaN.
constexpr int kPoison = 7;

using Weights = std::map<std::string, std::vector<float>>;

Weights MakeWeights() {
  Weights weights;
  uint32_t x = 1;
  const auto add = [&](const std::string& name, size_t size, bool norm) {
    std::vector<float>& values = weights[name];
    for (size_t i = 0; i < size; ++i) {
      x = x * 1664525 + 1013904223;
      values.push_back(norm ? 1.0F : static_cast<float>(x >> 16) / 65536 - 0.5F);
    }
  };
  add("token_embd.weight", kVocabulary * kWidth, false);
  add("output.weight", kVocabulary * kWidth, false);
  add("output_norm.weight", kWidth, true);
  add("blk.0.attn_norm.weight", kWidth, true);
  add("blk.0.ffn_norm.weight", kWidth, true);
  for (const char* name :
       {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"}) {
    add(std::string("blk.0.") + name + ".weight", kWidth * kWidth, false);
  }
  return weights;
}

void WriteModel(const Weights& weights, Format format, const std::filesystem::path& path) {
  GgufWriter writer;
  writer.SetString("general.architecture", "llama");
  const std::pair<const char*, uint64_t> numbers[] = {
      {"block_count", 1},           {"context_length", 64},
      {"embedding_length", kWidth}, {"feed_forward_length", kWidth},
      {"attention.head_count", 2},  {"vocab_size", kVocabulary}};
  for (const auto& [key, value] : numbers) writer.SetUint64(std::string("llama.") + key, value);
  writer.SetFloat32("llama.attention.layer_norm_rms_epsilon", 1e-5F);
  const auto format_of = [&](const std::string& name) {
    return name.find("norm") == std::string::npos && name != "token_embd.weight" ? format
                                                                                 : Format::kF32;
  };
  for (const auto& [name, values] : weights) {
    std::vector<uint64_t> shape = {kWidth};
    if (values.size() > kWidth) shape = {values.size() / kWidth, kWidth};
    ASSERT_TRUE(writer.AddTensor(name, format_of(name), shape));
  }
  auto stream = writer.Begin(path);
  ASSERT_TRUE(stream) << stream.error().message;
  for (const auto& [name, values] : weights) {
    const FormatTraits& traits = TraitsOf(format_of(name));
    std::vector<std::byte> bytes(traits.RowBytes(values.size()));
    traits.encode(values.data(), bytes.data(), values.size());
    ASSERT_TRUE(stream->Append(bytes));
  }
  ASSERT_TRUE(stream->Finish());
}

Request Ask(std::vector<TokenId> prompt, float temperature) {
  Request request{.prompt = std::move(prompt), .max_tokens = 5, .ignore_end = true};
  request.sampling.temperature = temperature;
  return request;
}

struct Case {
  Act act;
  Format format;
  float temperature;
};

class NanModel : public ::testing::TestWithParam<Case> {
 protected:
  std::unique_ptr<Engine> Load(const Weights& weights) {
    const auto path = dir_.path() / "nan.gguf";
    WriteModel(weights, GetParam().format, path);
    auto engine = Engine::Create(path, {.threads = 2, .act = GetParam().act});
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? *std::move(engine) : nullptr;
  }

  static void ExpectNan(const Answer& answer, const std::string& where) {
    EXPECT_EQ(answer.finish.reason, FinishReason::kError) << where;
    ASSERT_TRUE(answer.finish.error) << where;
    EXPECT_NE(answer.finish.error->message.find("nan"), std::string::npos)
        << where << ": " << answer.finish.error->message;
    EXPECT_TRUE(answer.tokens.empty()) << where;
  }

  testing::TempDir dir_;
};

TEST_P(NanModel, ANanInANormEndsEveryRequestWithAnError) {
  for (const char* name :
       {"blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"}) {
    Weights weights = MakeWeights();
    weights[name][3] = std::numeric_limits<float>::quiet_NaN();
    const auto engine = Load(weights);
    ASSERT_TRUE(engine);
    for (int i = 0; i < 2; ++i) {
      auto stream = std::make_shared<EventStream>();
      ASSERT_TRUE(engine->Submit(Ask({TokenId{1}, TokenId{2}}, GetParam().temperature), stream));
      ExpectNan(Collect(*stream)[0], name);
    }
  }
}

TEST_P(NanModel, OthersGoOn) {
  Weights weights = MakeWeights();
  weights["token_embd.weight"][kPoison * kWidth + 5] = std::numeric_limits<float>::quiet_NaN();
  const auto engine = Load(weights);
  ASSERT_TRUE(engine);
  std::vector<std::shared_ptr<EventStream>> streams;
  for (int i = 0; i < 6; ++i) {
    Request request =
        Ask({TokenId{1}, TokenId{i % 2 == 0 ? kPoison : 2}, TokenId{i}}, GetParam().temperature);
    request.sampling.logit_bias = {
        {TokenId{kPoison}, -std::numeric_limits<float>::infinity()}};  // never drawn
    streams.push_back(std::make_shared<EventStream>());
    ASSERT_TRUE(engine->Submit(request, streams.back()));
  }
  for (size_t i = 0; i < streams.size(); ++i) {
    const Answer answer = Collect(*streams[i])[0];
    if (i % 2 == 0) {
      ExpectNan(answer, "poisoned");
    } else {
      EXPECT_EQ(answer.finish.reason, FinishReason::kLength);
      EXPECT_EQ(answer.tokens.size(), 5U);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    AllWays, NanModel,
    ::testing::Values(Case{Act::kF32, Format::kF32, 0}, Case{Act::kF32, Format::kQ8_0, 0.8F},
                      Case{Act::kInt8, Format::kF32, 0.8F}, Case{Act::kInt8, Format::kQ8_0, 0},
                      Case{Act::kInt8, Format::kQ8_0, 0.8F}, Case{Act::kInt8, Format::kQ4_0, 0},
                      Case{Act::kInt8, Format::kQ4_0, 0.8F}));

}  // namespace
}  // namespace nibble
