// Every sampler against NumPy (tools/make_sampler_goldens.py): the token of each seed, and the
// whole sampler's draws against the exact distribution.
#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>

#include "container/json.h"
#include "engine/fake_executor.h"
#include "engine/sampler.h"
#include "kernels/kernel_table.h"
#include "tests/support/sanitizer.h"
#include "tests/support/test_data.h"
#include "tokenizer/load.h"

namespace nibble {
namespace {

struct Golden {
  std::string name;
  PreparedSampling sampling;
  int choice = 0;
  std::vector<TokenId> prompt, answer;
  double mirostat = 0;
  std::vector<float> logits;
  std::vector<double> probabilities;
  std::vector<TokenId> drawn;
  std::vector<double> targets;

  SamplerState State() const {
    SamplerState state(sampling.params.penalty_last_n, ShareTokens(prompt));
    for (const TokenId id : answer) {
      state.Accept(id, sampling.params.mirostat == 2 ? std::optional(mirostat) : std::nullopt);
    }
    return state;
  }
};

std::vector<double> Numbers(JsonValue value) {
  std::vector<double> out;
  const JsonArray list = *value.AsArray();
  for (const JsonValue one : list) out.push_back(*one.AsDouble());
  return out;
}

std::vector<TokenId> Ids(JsonValue value) {
  std::vector<TokenId> out;
  for (const double id : Numbers(value)) out.emplace_back(static_cast<int>(id));
  return out;
}

std::vector<std::vector<TokenId>> IdLists(JsonValue value) {
  std::vector<std::vector<TokenId>> out;
  const JsonArray list = *value.AsArray();
  for (const JsonValue one : list) out.push_back(Ids(one));
  return out;
}

SamplingParams ReadParams(JsonValue value) {
  const auto real = [&](const char* key) { return static_cast<float>(*value.GetDouble(key)); };
  const auto whole = [&](const char* key) { return static_cast<int>(*value.GetInt(key)); };
  return {.temperature = real("temperature"),
          .top_k = whole("top_k"),
          .top_p = real("top_p"),
          .min_p = real("min_p"),
          .typical_p = real("typical_p"),
          .top_n_sigma = real("top_n_sigma"),
          .xtc_probability = real("xtc_probability"),
          .xtc_threshold = real("xtc_threshold"),
          .dynatemp_range = real("dynatemp_range"),
          .dynatemp_exponent = real("dynatemp_exponent"),
          .mirostat = whole("mirostat"),
          .mirostat_tau = real("mirostat_tau"),
          .mirostat_eta = real("mirostat_eta"),
          .repetition_penalty = real("repetition_penalty"),
          .presence_penalty = real("presence_penalty"),
          .frequency_penalty = real("frequency_penalty"),
          .penalty_last_n = whole("penalty_last_n"),
          .dry_multiplier = real("dry_multiplier"),
          .dry_base = real("dry_base"),
          .dry_allowed_length = whole("dry_allowed_length"),
          .dry_penalty_last_n = whole("dry_penalty_last_n"),
          .min_tokens = whole("min_tokens")};
}

Golden ReadGolden(JsonValue value) {
  Golden golden;
  golden.name = *value.GetString("name");
  golden.sampling.params = ReadParams(*value.Get("params"));
  golden.sampling.ends = Ids(*value.Get("ends"));
  golden.sampling.bad_words = IdLists(*value.Get("bad_words"));
  for (const std::vector<TokenId>& one : IdLists(*value.Get("breakers_list"))) {
    golden.sampling.breakers[one[0]].emplace_back(one.begin() + 1, one.end());
  }
  const JsonArray biases = *value.Get("logit_bias")->AsArray();
  for (const JsonValue one : biases) {
    const std::vector<double> pair = Numbers(one);
    golden.sampling.params.logit_bias.push_back(
        {TokenId{static_cast<int>(pair[0])}, static_cast<float>(pair[1])});
  }
  golden.choice = static_cast<int>(*value.GetInt("choice"));
  golden.prompt = Ids(*value.Get("prompt"));
  golden.answer = Ids(*value.Get("answer"));
  golden.mirostat = *value.GetDouble("mirostat_state");
  for (const double x : Numbers(*value.Get("logits"))) {
    golden.logits.push_back(static_cast<float>(x));
  }
  golden.probabilities = Numbers(*value.Get("probabilities"));
  golden.drawn = Ids(*value.Get("drawn"));
  if (const auto targets = value.Find("targets")) golden.targets = Numbers(*targets);
  return golden;
}

std::vector<Golden> ReadGoldens() {
  const auto document =
      JsonDocument::ReadFile(testing::SourcePath("tests/golden/sampling/cases.json"));
  NIBBLE_CHECK(document.has_value());
  std::vector<Golden> goldens;
  const JsonArray cases = *document->root().AsArray();
  for (const JsonValue one : cases) goldens.push_back(ReadGolden(one));
  return goldens;
}

Sampler MakeSampler(const Golden& golden) {
  return Sampler(static_cast<int>(golden.logits.size()), KernelsFor(Isa::kScalar));
}

TEST(SamplerGoldens, DrawTheTokensThatNumPyDraws) {
  for (Golden& golden : ReadGoldens()) {
    Sampler sampler = MakeSampler(golden);
    const SamplerState state = golden.State();
    for (size_t seed = 0; seed < golden.drawn.size(); ++seed) {
      golden.sampling.params.seed = seed;
      const auto drawn = sampler.Draw(golden.sampling, state, golden.choice, -1, golden.logits);
      ASSERT_TRUE(drawn) << golden.name;
      EXPECT_EQ(drawn->id, golden.drawn[seed]) << golden.name << ", seed " << seed;
      ASSERT_EQ(drawn->mirostat.has_value(), !golden.targets.empty()) << golden.name;
      if (drawn->mirostat) {
        EXPECT_NEAR(*drawn->mirostat, golden.targets[seed], 1e-5) << golden.name;
      }
    }
  }
}

// What chi-square of so many degrees of freedom exceeds once in 100,000 (Wilson, Hilferty 1931).
double ChiSquareBound(int freedom) {
  const double a = 2.0 / (9.0 * freedom);
  return freedom * std::pow(1 - a + 4.265 * std::sqrt(a), 3);
}

TEST(SamplerGoldens, DrawsFollowTheExactDistribution) {
#if NIBBLE_SANITIZED
  GTEST_SKIP() << "a million draws take a sanitizer many minutes";
#endif
  constexpr int kDraws = 30000;
  for (Golden& golden : ReadGoldens()) {
    Sampler sampler = MakeSampler(golden);
    const SamplerState state = golden.State();
    std::vector<int> counts(golden.logits.size());
    for (int i = 0; i < kDraws; ++i) {
      golden.sampling.params.seed = 1000 + static_cast<uint64_t>(i);
      const auto drawn = sampler.Draw(golden.sampling, state, golden.choice, -1, golden.logits);
      ASSERT_TRUE(drawn) << golden.name;
      ++counts[static_cast<size_t>(drawn->id.value())];
    }
    // Tokens that are expected fewer than 5 times are counted together.
    double chi = 0, rare = 0;
    int rare_count = 0, freedom = -1;
    for (size_t id = 0; id < counts.size(); ++id) {
      const double expected = golden.probabilities[id] * kDraws;
      if (expected == 0) {
        EXPECT_EQ(counts[id], 0) << golden.name << ", token " << id;
      } else if (expected < 5) {
        rare += expected;
        rare_count += counts[id];
      } else {
        chi += (counts[id] - expected) * (counts[id] - expected) / expected;
        ++freedom;
      }
    }
    if (rare >= 5) {
      chi += (rare_count - rare) * (rare_count - rare) / rare;
      ++freedom;
    } else {
      EXPECT_LE(rare_count, rare + 20) << golden.name;
    }
    if (freedom > 0) {
      EXPECT_LT(chi, ChiSquareBound(freedom)) << golden.name;
    }
  }
}

// Tokens 0 " ", 1 "a", 2 "e", 3 "n", 4 "d", 5 "xe", 6 "x", 7 "nd".
Tokenizer SmallTokenizer() {
  auto tokenizer = ParseTokenizerJson(
      R"({"added_tokens":[],"model":{"type":"BPE","vocab":{" ":0,"a":1,"e":2,"n":3,"d":4,"xe":5,)"
      R"("x":6,"nd":7},"merges":["x e","n d"]}})");
  NIBBLE_CHECK(tokenizer.has_value());
  return *std::move(tokenizer);
}

TEST(DryBreakers, GoOnInTheTokensBehind) {
  const Tokenizer tokenizer = SmallTokenizer();
  const std::vector<std::string> texts = {"end"};
  const auto breakers = FindDryBreakers(texts, tokenizer);
  ASSERT_TRUE(breakers) << breakers.error().message;
  EXPECT_EQ(breakers->size(), 2U);
  for (const int id : {2, 5}) {
    EXPECT_EQ(breakers->at(TokenId{id}), (std::vector<std::vector<TokenId>>{{TokenId{7}}})) << id;
  }
}

TEST(PrepareSampling, FindsBadWordsWithAndWithoutASpace) {
  const Tokenizer tokenizer = SmallTokenizer();
  SamplingParams params;
  params.bad_words = {"nd", " and"};
  const auto prepared = PrepareSampling(params, tokenizer);
  ASSERT_TRUE(prepared) << prepared.error().message;
  const auto ids = [](std::initializer_list<int> list) {
    return std::vector<TokenId>(list.begin(), list.end());
  };
  EXPECT_EQ(prepared->bad_words, (std::vector<std::vector<TokenId>>{ids({7}), ids({0, 7}),
                                                                    ids({1, 7}), ids({0, 1, 7})}));
  EXPECT_EQ(*BiasedTokens("andxend", tokenizer), ids({1, 5, 7}));
  for (const std::string& bad : {std::string(), std::string(1001, 'a')}) {
    params.bad_words = {bad};
    EXPECT_FALSE(PrepareSampling(params, tokenizer));
  }
  params.bad_words.assign(1025, "a");
  EXPECT_FALSE(PrepareSampling(params, tokenizer));
}

TEST(DryBreakers, AreTokensThatHoldTheText) {
  const Tokenizer tokenizer = testing::ListTokenizer({"a", "x\n", "\n", "b:", ":", "\n\n"});
  const std::vector<std::string> texts = {"\n"};
  const auto breakers = FindDryBreakers(texts, tokenizer);
  ASSERT_TRUE(breakers) << breakers.error().message;
  EXPECT_EQ(breakers->size(), 3U);
  for (const int id : {1, 2, 5}) {
    EXPECT_EQ(breakers->at(TokenId{id}), std::vector<std::vector<TokenId>>{{}}) << id;
  }
  EXPECT_FALSE(FindDryBreakers(std::vector<std::string>{""}, tokenizer));
  EXPECT_FALSE(FindDryBreakers(std::vector<std::string>{std::string(41, 'x')}, tokenizer));
  EXPECT_FALSE(FindDryBreakers(std::vector<std::string>(65, "x"), tokenizer));
}

}  // namespace
}  // namespace nibble
