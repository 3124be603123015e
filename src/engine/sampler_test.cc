#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <utility>

#include "engine/candidates.h"
#include "kernels/kernel_table.h"

namespace nibble {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> RandomLogits(int n, uint32_t seed, float spread = 3) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(n);
  for (float& x : logits) x = normal(random);
  return logits;
}

std::vector<double> Softmax(const Candidates& candidates, double temperature = 1) {
  double max = -1e300, total = 0;
  for (const Candidate& c : candidates) max = std::max(max, double{c.logit});
  std::vector<double> p;
  for (const Candidate& c : candidates) p.push_back(std::exp((c.logit - max) / temperature));
  for (double x : p) total += x;
  for (double& x : p) x /= total;
  return p;
}

std::set<int> Ids(const Candidates& candidates) {
  std::set<int> ids;
  for (const Candidate& c : candidates) ids.insert(c.id.value());
  return ids;
}

// All tokens in MoreProbable order, the slow way.
Candidates Sorted(std::span<const float> logits) {
  Candidates all;
  for (size_t i = 0; i < logits.size(); ++i) {
    all.push_back({TokenId{static_cast<int>(i)}, logits[i]});
  }
  std::ranges::sort(all, [](const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  });
  return all;
}

const KernelTable& Kernels() { return KernelsFor(Isa::kScalar); }

Sampler MakeSampler(int vocabulary) { return Sampler(vocabulary, Kernels()); }

// Parameters that need no vocabulary.
PreparedSampling Plain(const SamplingParams& params) {
  PreparedSampling prepared;
  prepared.params = params;
  return prepared;
}

TEST(MostProbable, FindsTheFirstMaximumAndRefusesNan) {
  for (int n : {1, 2, 15, 16, 17, 31, 32, 33, 1000}) {
    std::vector<float> logits = RandomLogits(n, n);
    for (int at = 0; at < n; at += 1 + n / 9) {
      std::vector<float> row = logits;
      row[at] = 100;
      row[n - 1] = 100;
      EXPECT_EQ(MostProbable(Kernels(), row)->value(), at);
      row[at] = std::nanf("");
      EXPECT_FALSE(MostProbable(Kernels(), row));
      row[at] = kInfinity;
      EXPECT_FALSE(MostProbable(Kernels(), row));
      row[at] = -kInfinity;
      EXPECT_EQ(MostProbable(Kernels(), row).has_value(), n > 1);
    }
  }
}

TEST(TopOf, EqualsSortingEverything) {
  for (int n : {1, 5, 70, 300, 5000}) {
    std::vector<float> logits = RandomLogits(n, n);
    for (float& x : logits) x = std::round(x * 4) / 4;  // many ties
    const Candidates sorted = Sorted(logits);
    for (int k : {1, 2, 40, 200, 4999, 5000, 9000}) {
      Candidates top = TopOf(Kernels(), logits, k);
      if (k >= n) std::ranges::sort(top, MoreProbable);  // all, in order of ids
      ASSERT_EQ(top.size(), static_cast<size_t>(std::min(k, n)));
      for (size_t i = 0; i < top.size(); ++i) ASSERT_EQ(top[i].id, sorted[i].id) << n << " " << k;
    }
  }
}

TEST(TopOf, LeavesForbiddenTokensOut) {
  const std::vector<float> logits = {1, -kInfinity, 3, -kInfinity};
  EXPECT_EQ(Ids(TopOf(Kernels(), logits, 0)), (std::set<int>{0, 2}));
  EXPECT_EQ(Ids(TopOf(Kernels(), logits, 3)), (std::set<int>{0, 2}));
}

TEST(KeepTopP, KeepsTheSmallestPrefixThatReachesP) {
  for (float spread : {0.01F, 1.0F, 4.0F}) {
    const std::vector<float> logits = RandomLogits(3000, 5, spread);
    const Candidates sorted = Sorted(logits);
    const std::vector<double> p = Softmax(sorted);
    for (double limit : {0.0, 0.1, 0.5, 0.9, 0.99, 1.0}) {
      std::set<int> expected;
      double reached = 0;
      for (size_t i = 0; i < sorted.size() && (i == 0 || reached < limit); ++i) {
        expected.insert(sorted[i].id.value());
        reached += p[i];
      }
      if (limit == 1.0) expected = Ids(sorted);
      Candidates kept = TopOf(Kernels(), logits, 0);
      KeepTopP(kept, limit, LogTotal(kept));
      EXPECT_EQ(Ids(kept), expected) << spread << " " << limit;
      if (limit < 1) {
        EXPECT_EQ(Ids(NucleusOf(Kernels(), logits, limit)), expected) << spread << " " << limit;
      }
    }
  }
}

TEST(KeepMinP, KeepsWhatIsCloseToTheMaximum) {
  const std::vector<float> logits = RandomLogits(3000, 6);
  const Candidates sorted = Sorted(logits);
  const std::vector<double> p = Softmax(sorted);
  for (double limit : {0.0, 0.01, 0.2, 1.0}) {
    std::set<int> expected;
    for (size_t i = 0; i < sorted.size(); ++i) {
      if (p[i] >= limit * p[0] * (1 - 1e-12)) expected.insert(sorted[i].id.value());
    }
    Candidates kept = TopOf(Kernels(), logits, 0);
    KeepMinP(kept, limit);
    EXPECT_EQ(Ids(kept), expected) << limit;
    if (limit > 0) {
      EXPECT_EQ(Ids(MinPOf(Kernels(), logits, limit)), expected) << limit;
    }
  }
}

TEST(KeepTypical, KeepsWhatIsClosestToTheEntropy) {
  const std::vector<float> logits = RandomLogits(1000, 7, 1.5F);
  Candidates all = Sorted(logits);
  const std::vector<double> p = Softmax(all);
  double entropy = 0;
  for (double x : p) entropy -= x * std::log(x);
  std::vector<size_t> order(all.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](size_t i) { return std::abs(-std::log(p[i]) - entropy); });
  for (double limit : {0.0, 0.2, 0.7, 0.95}) {
    std::set<int> expected;
    double reached = 0;
    for (size_t i = 0; i < order.size() && (i == 0 || reached <= limit); ++i) {
      expected.insert(all[order[i]].id.value());
      reached += p[order[i]];
    }
    Candidates kept = TopOf(Kernels(), logits, 0);
    KeepTypical(kept, limit, LogTotal(kept));
    EXPECT_EQ(Ids(kept), expected) << limit;
  }
}

TEST(Penalties, FollowTheFormulas) {
  SamplingParams params;
  params.repetition_penalty = 1.5F;
  params.frequency_penalty = 0.25F;
  params.presence_penalty = 0.5F;
  params.penalty_last_n = 4;
  params.logit_bias = {{TokenId{0}, 1.0F}, {TokenId{4}, -kInfinity}};
  const SamplerState state(
      params.penalty_last_n,
      ShareTokens({TokenId{3}, TokenId{1}, TokenId{2}, TokenId{1}, TokenId{0}}));  // sees 1 2 1 0
  std::vector<float> logits = {2, -1, 3, 5, 7};
  ApplyBiasAndPenalties(params, state, logits);
  EXPECT_FLOAT_EQ(logits[0], 3 / 1.5F - 0.75F);
  EXPECT_FLOAT_EQ(logits[1], -1 * 1.5F - 1.0F);
  EXPECT_FLOAT_EQ(logits[2], 3 / 1.5F - 0.75F);
  EXPECT_EQ(logits[3], 5);
  EXPECT_EQ(logits[4], -kInfinity);
}

std::map<TokenId, int> CountsOf(const SamplerState& state) {
  std::map<TokenId, int> counts;
  state.VisitCounts([&](TokenId id, int count) {
    EXPECT_GT(count, 0);
    EXPECT_TRUE(counts.emplace(id, count).second) << "twice";
  });
  return counts;
}

// The last `window` tokens (-1: all), counted.
std::map<TokenId, int> CountsOf(std::span<const TokenId> tokens, int window) {
  const size_t size = tokens.size();
  const size_t last = window < 0 ? size : std::min(size, static_cast<size_t>(window));
  std::map<TokenId, int> counts;
  for (TokenId id : tokens.last(last)) ++counts[id];
  return counts;
}

TEST(SamplerState, RollbackIsAsIfTheTokensHadNeverBeen) {
  std::mt19937 random(11);
  for (int window : {-1, 0, 1, 3, 16}) {
    std::vector<TokenId> tokens = {TokenId{3}, TokenId{0}, TokenId{3}, TokenId{4}};
    std::vector<SamplerState> checkpoints = {SamplerState(window, ShareTokens(tokens))};
    for (int i = 0; i < 60; ++i) {
      SamplerState next = checkpoints.back();
      tokens.emplace_back(static_cast<int>(random() % 5));
      next.Accept(tokens.back(), i);
      checkpoints.push_back(next);
      EXPECT_EQ(CountsOf(next), CountsOf(tokens, window)) << window << " " << i;
    }
    for (int n : {0, 1, 5, 17, 60}) {
      SamplerState state = checkpoints.back();
      state.Rollback(n);
      const SamplerState& expected = checkpoints[checkpoints.size() - 1 - n];
      EXPECT_EQ(state.position(), expected.position());
      EXPECT_EQ(CountsOf(state), CountsOf(expected)) << window << " " << n;
      EXPECT_EQ(state.mirostat(), expected.mirostat());
    }
  }
}

TEST(DrawKey, UniformsStayInsideTheOpenInterval) {
  EXPECT_GT(DrawKey::Uniform(0), 0);
  EXPECT_LT(DrawKey::Uniform(~uint64_t{0}), 1);
}

TEST(DrawGumbelMax, EqualsTheFormulaWithoutShortcuts) {
  const std::vector<float> logits = RandomLogits(2000, 8, 2);
  const Candidates all = TopOf(Kernels(), logits, 0);
  for (int position = 0; position < 200; ++position) {
    for (double temperature : {0.3, 1.0, 5.0}) {
      const DrawKey key(77, 1, position);
      int best = -1;
      double best_score = -1e300;
      for (const Candidate& c : all) {
        const double u = DrawKey::Uniform(key.Bits(c.id));
        const double score = c.logit / temperature - std::log(-std::log(u));
        if (score > best_score) {
          best_score = score;
          best = c.id.value();
        }
      }
      ASSERT_EQ(DrawGumbelMax(all, temperature, key).value(), best);
    }
  }
}

// Chi-square of draws at many positions against the exact distribution.
double ChiSquare(const Candidates& candidates, double temperature, uint64_t seed, int draws) {
  const std::vector<double> p = Softmax(candidates, temperature);
  std::map<TokenId, int> counts;
  for (int i = 0; i < draws; ++i) {
    ++counts[DrawGumbelMax(candidates, temperature, DrawKey(seed, i % 3, i))];
  }
  double chi = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const double expected = p[i] * draws;
    const double difference = counts[candidates[i].id] - expected;
    chi += difference * difference / expected;
  }
  return chi;
}

TEST(DrawGumbelMax, DrawsFromTheSoftmax) {
  const std::vector<float> logits = {0.5F, -1, 2, 1.3F, 0, -0.4F, 1.9F, 0.1F};
  const Candidates all = TopOf(Kernels(), logits, 0);
  // 7 degrees of freedom: 24.3 is exceeded with probability 0.001.
  EXPECT_LT(ChiSquare(all, 1.0, 1, 40000), 24.3);
  EXPECT_LT(ChiSquare(all, 0.7, 2, 40000), 24.3);
  EXPECT_LT(ChiSquare(all, 2.5, 0, 40000), 24.3);
}

// Over a whole vocabulary: against a log-softmax in double, and as probabilities that add up.
TEST(Sampler, LogprobsAreTheLogSoftmax) {
  const int n = 700;
  Sampler sampler = MakeSampler(n);
  for (const float spread : {0.1F, 3.0F, 40.0F}) {
    const std::vector<float> logits = RandomLogits(n, 21, spread);
    const std::vector<double> p = Softmax(Sorted(logits));
    SamplingParams params;
    params.temperature = 0.6F;  // the draw's own parameters change nothing
    params.top_k = 5;
    params.repetition_penalty = 1.5F;
    const SamplerState state(-1, ShareTokens({TokenId{1}, TokenId{2}}));
    const auto drawn = sampler.Draw(Plain(params), state, 0, n, logits);
    ASSERT_TRUE(drawn);
    ASSERT_EQ(drawn->top.size(), static_cast<size_t>(n));
    double total = 0;
    std::set<int> ids;
    for (size_t i = 0; i < drawn->top.size(); ++i) {
      const TokenLogprob& top = drawn->top[i];
      if (p[i] > 0) {
        EXPECT_NEAR(top.logprob, std::log(p[i]), 1e-5 + 1e-6 * spread) << i;
      }
      if (top.id == drawn->id) {
        EXPECT_EQ(top.logprob, drawn->logprob);
      }
      total += std::exp(double{top.logprob});
      ids.insert(top.id.value());
    }
    EXPECT_NEAR(total, 1, 1e-5);
    EXPECT_EQ(ids.size(), static_cast<size_t>(n));
  }
}

TEST(DrawGumbelMax, NeighbouringKeysAreIndependent) {
  // Pairs of draws at positions (i, i + 1) and with seeds (s, s + 1) over 4 equal tokens.
  const Candidates four = {{TokenId{0}, 0}, {TokenId{1}, 0}, {TokenId{2}, 0}, {TokenId{3}, 0}};
  for (bool by_seed : {false, true}) {
    std::vector<int> counts(16);
    const int draws = 32000;
    for (int i = 0; i < draws; ++i) {
      const DrawKey a(by_seed ? i : 5, 0, by_seed ? 9 : 2 * i);
      const DrawKey b(by_seed ? i + 1 : 5, 0, by_seed ? 9 : 2 * i + 1);
      ++counts[4 * DrawGumbelMax(four, 1, a).value() + DrawGumbelMax(four, 1, b).value()];
    }
    double chi = 0;
    for (int count : counts) chi += std::pow(count - draws / 16.0, 2) / (draws / 16.0);
    EXPECT_LT(chi, 37.7);  // 15 degrees of freedom, 0.001
  }
}

TEST(Sampler, GreedyIsTheArgmaxAfterPenaltiesAndBias) {
  Sampler sampler = MakeSampler(4);
  const std::vector<float> logits = {1, 3, 3, 2};
  SamplingParams params;
  const SamplerState state(-1, ShareTokens({TokenId{1}}));
  EXPECT_EQ(sampler.Draw(Plain(params), state, 0, -1, logits)->id, TokenId{1});
  params.presence_penalty = 0.5F;
  EXPECT_EQ(sampler.Draw(Plain(params), state, 0, -1, logits)->id, TokenId{2});
  params.logit_bias = {{TokenId{2}, -kInfinity}};
  EXPECT_EQ(sampler.Draw(Plain(params), state, 0, -1, logits)->id, TokenId{1});
}

TEST(Sampler, AppliesTheFiltersInOrder) {
  const int n = 500;
  const std::vector<float> logits = RandomLogits(n, 12, 2);
  Sampler sampler = MakeSampler(n);
  SamplingParams params;
  params.temperature = 1.5F;
  params.top_k = 60;
  params.typical_p = 0.9F;
  params.top_p = 0.8F;
  params.min_p = 0.05F;
  params.seed = 4;
  Candidates allowed = TopOf(Kernels(), logits, 60);
  KeepTypical(allowed, params.typical_p, LogTotal(allowed));
  KeepTopP(allowed, params.top_p, LogTotal(allowed));
  KeepMinP(allowed, params.min_p);
  SamplerState state(0);
  std::set<int> seen;
  for (int i = 0; i < 3000; ++i) {
    const TokenId drawn = sampler.Draw(Plain(params), state, 0, -1, logits)->id;
    EXPECT_EQ(drawn, DrawGumbelMax(allowed, params.temperature, DrawKey(4, 0, i)));
    seen.insert(drawn.value());
    state.Accept(drawn);
  }
  EXPECT_EQ(seen, Ids(allowed));
}

TEST(Sampler, LogprobsAreOfTheModelsLogits) {
  const std::vector<float> logits = {1, 3, 0.5F, 2};
  Sampler sampler = MakeSampler(4);
  SamplingParams params;
  params.logit_bias = {{TokenId{1}, -kInfinity}};
  const auto drawn = sampler.Draw(Plain(params), SamplerState(0), 0, 2, logits);
  ASSERT_TRUE(drawn);
  const double total = std::log(std::exp(1) + std::exp(3) + std::exp(0.5) + std::exp(2));
  EXPECT_EQ(drawn->id, TokenId{3});
  EXPECT_NEAR(drawn->logprob, 2 - total, 1e-6);
  ASSERT_EQ(drawn->top.size(), 2U);
  EXPECT_EQ(drawn->top[0].id, TokenId{1});
  EXPECT_NEAR(drawn->top[0].logprob, 3 - total, 1e-6);
  EXPECT_EQ(drawn->top[1].id, TokenId{3});
}

TEST(CheckSampling, RefusesWhatIsOutOfRangeByName) {
  auto refused = [](void (*change)(SamplingParams&), const char* name) {
    SamplingParams params;
    change(params);
    const Status status = CheckSampling(params, 100);
    return !status && status.error().message.find(name) != std::string::npos;
  };
  EXPECT_TRUE(CheckSampling({}, 100));
  EXPECT_TRUE(refused([](SamplingParams& p) { p.temperature = -1; }, "temperature"));
  EXPECT_TRUE(refused([](SamplingParams& p) { p.top_k = -1; }, "top_k"));
  EXPECT_TRUE(refused([](SamplingParams& p) { p.top_p = 1.5F; }, "top_p"));
  EXPECT_TRUE(refused([](SamplingParams& p) { p.typical_p = -0.1F; }, "typical_p"));
  EXPECT_TRUE(refused([](SamplingParams& p) { p.repetition_penalty = 0; }, "repetition_penalty"));
  EXPECT_TRUE(refused([](SamplingParams& p) { p.presence_penalty = kInfinity; }, "presence"));
  EXPECT_TRUE(refused([](SamplingParams& p) { p.frequency_penalty = kInfinity; }, "frequency"));
  EXPECT_TRUE(refused([](SamplingParams& p) { p.penalty_last_n = -2; }, "penalty_last_n"));
  EXPECT_TRUE(refused([](SamplingParams& p) { p.xtc_probability = 1.1F; }, "xtc_probability"));
  EXPECT_TRUE(refused([](SamplingParams& p) { p.xtc_threshold = -0.1F; }, "xtc_threshold"));
  EXPECT_TRUE(refused([](SamplingParams& p) { p.dynatemp_range = -1; }, "dynatemp_range"));
  EXPECT_TRUE(refused([](SamplingParams& p) { p.dynatemp_exponent = -1; }, "dynatemp_exponent"));
  EXPECT_TRUE(refused([](SamplingParams& p) { p.mirostat = 1; }, "mirostat"));
  EXPECT_TRUE(refused([](SamplingParams& p) { p.mirostat_tau = -1; }, "mirostat_tau"));
  EXPECT_TRUE(refused([](SamplingParams& p) { p.mirostat_eta = kInfinity; }, "mirostat_eta"));
  EXPECT_TRUE(refused([](SamplingParams& p) { p.dry_multiplier = -1; }, "dry_multiplier"));
  EXPECT_TRUE(refused([](SamplingParams& p) { p.dry_base = 0.5F; }, "dry_base"));
  EXPECT_TRUE(refused([](SamplingParams& p) { p.dry_allowed_length = -1; }, "dry_allowed_length"));
  EXPECT_TRUE(refused([](SamplingParams& p) { p.dry_penalty_last_n = -2; }, "dry_penalty_last_n"));
  EXPECT_TRUE(refused([](SamplingParams& p) { p.min_tokens = -1; }, "min_tokens"));
  EXPECT_TRUE(refused([](SamplingParams& p) { p.logit_bias = {{TokenId{100}, 1}}; }, "100"));
  EXPECT_TRUE(refused([](SamplingParams& p) { p.logit_bias = {{TokenId{1}, kInfinity}}; }, "bias"));
}

TEST(CheckSampling, RefusesWhatMirostatTakesThePlaceOf) {
  const auto refused = [](void (*change)(SamplingParams&), const char* name) {
    SamplingParams params;
    params.mirostat = 2;
    EXPECT_TRUE(CheckSampling(params, 100));
    change(params);
    const Status status = CheckSampling(params, 100);
    return !status && status.error().message.find(name) != std::string::npos;
  };
  EXPECT_TRUE(refused([](SamplingParams& p) { p.xtc_probability = 0.5F; }, "xtc_probability"));
  EXPECT_TRUE(refused([](SamplingParams& p) { p.dynatemp_range = 0.5F; }, "dynatemp_range"));
  EXPECT_TRUE(refused([](SamplingParams& p) { p.top_n_sigma = 1; }, "top_n_sigma"));
}

TEST(CheckSampling, RefusesNanInEveryNumber) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::pair<float SamplingParams::*, const char*> numbers[] = {
      {&SamplingParams::temperature, "temperature"},
      {&SamplingParams::top_p, "top_p"},
      {&SamplingParams::min_p, "min_p"},
      {&SamplingParams::typical_p, "typical_p"},
      {&SamplingParams::repetition_penalty, "repetition_penalty"},
      {&SamplingParams::presence_penalty, "presence_penalty"},
      {&SamplingParams::frequency_penalty, "frequency_penalty"},
      {&SamplingParams::top_n_sigma, "top_n_sigma"},
      {&SamplingParams::xtc_probability, "xtc_probability"},
      {&SamplingParams::xtc_threshold, "xtc_threshold"},
      {&SamplingParams::dynatemp_range, "dynatemp_range"},
      {&SamplingParams::dynatemp_exponent, "dynatemp_exponent"},
      {&SamplingParams::mirostat_tau, "mirostat_tau"},
      {&SamplingParams::mirostat_eta, "mirostat_eta"},
      {&SamplingParams::dry_multiplier, "dry_multiplier"},
      {&SamplingParams::dry_base, "dry_base"}};
  for (const auto& [member, name] : numbers) {
    SamplingParams params;
    params.*member = kNan;
    const Status status = CheckSampling(params, 100);
    ASSERT_FALSE(status) << name;
    EXPECT_TRUE(status.error().message.starts_with(name)) << status.error().message;
  }
  EXPECT_FALSE(CheckSampling({.logit_bias = {{TokenId{1}, kNan}}}, 100));
}

}  // namespace
}  // namespace nibble
