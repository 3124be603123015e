#include "engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>

#include "engine/candidates.h"
#include "kernels/elementwise.h"
#include "kernels/sampling.h"

namespace nibble {
namespace {

// Below this a temperature divides logits to infinity; it counts as 0.
constexpr float kLeastTemperature = 1e-6F;

Status CheckRange(const char* name, double value, double low, double high) {
  if (value >= low && value <= high) return {};
  return BadInput("{} is {}, expected a number from {} to {}", name, value, low, high);
}

constexpr uint32_t kExponent = 0x7F800000;
constexpr uint32_t kMinusInfinity = 0xFF800000;

}  // namespace

Status CheckSampling(const SamplingParams& p, int vocabulary) {
  constexpr double kMost = 1e6;
  NIBBLE_RETURN_IF_ERROR(CheckRange("temperature", p.temperature, 0, kMost));
  NIBBLE_RETURN_IF_ERROR(CheckRange("top_k", p.top_k, 0, std::numeric_limits<int>::max()));
  NIBBLE_RETURN_IF_ERROR(CheckRange("top_p", p.top_p, 0, 1));
  NIBBLE_RETURN_IF_ERROR(CheckRange("min_p", p.min_p, 0, 1));
  NIBBLE_RETURN_IF_ERROR(CheckRange("typical_p", p.typical_p, 0, 1));
  NIBBLE_RETURN_IF_ERROR(CheckRange("repetition_penalty", p.repetition_penalty, 1e-6, kMost));
  NIBBLE_RETURN_IF_ERROR(CheckRange("presence_penalty", p.presence_penalty, -kMost, kMost));
  NIBBLE_RETURN_IF_ERROR(CheckRange("frequency_penalty", p.frequency_penalty, -kMost, kMost));
  NIBBLE_RETURN_IF_ERROR(
      CheckRange("penalty_last_n", p.penalty_last_n, -1, std::numeric_limits<int>::max()));
  for (const LogitBias& bias : p.logit_bias) {
    if (bias.id.value() < 0 || bias.id.value() >= vocabulary) {
      return BadInput("logit_bias names token {}, the vocabulary has {}", bias.id.value(),
                      vocabulary);
    }
    if (bias.bias == -std::numeric_limits<float>::infinity()) continue;
    NIBBLE_RETURN_IF_ERROR(CheckRange("logit_bias", bias.bias, -kMost, kMost));
  }
  return {};
}

bool HasPenalties(const SamplingParams& p) {
  return p.repetition_penalty != 1 || p.presence_penalty != 0 || p.frequency_penalty != 0;
}

void ApplyBiasAndPenalties(const SamplingParams& params, const SamplerState& state,
                           std::span<float> logits) {
  for (const LogitBias& bias : params.logit_bias) logits[bias.id.value()] += bias.bias;
  if (!HasPenalties(params)) return;
  state.VisitCounts([&](TokenId id, int count) {
    float& logit = logits[id.value()];
    logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    logit -= static_cast<float>(count) * params.frequency_penalty + params.presence_penalty;
  });
}

Result<TokenId> MostProbable(const KernelTable& kernels, std::span<const float> logits) {
  // NaN and +infinity by their bits: as integers, one pass of vector instructions.
  uint32_t bad = 0;
  for (const float x : logits) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    bad |= static_cast<uint32_t>((bits & kExponent) == kExponent && bits != kMinusInfinity);
  }
  if (bad != 0) {
    const auto at = std::ranges::find_if(
        logits, [](float x) { return !(x <= std::numeric_limits<float>::max()); });
    return BadInput("the logit of token {} is {}", at - logits.begin(), *at);
  }
  const int best = ArgMaxLogit(kernels, logits);
  if (logits[static_cast<size_t>(best)] == -std::numeric_limits<float>::infinity()) {
    return BadInput("every token is forbidden");
  }
  return TokenId{best};
}

Sampler::Sampler(int vocabulary, const KernelTable& kernels)
    : kernels_(&kernels), changed_(static_cast<size_t>(vocabulary)) {}

size_t Sampler::Bytes(int vocabulary) {
  // Changed logits, all candidates, and their ranks in typical sampling.
  return static_cast<size_t>(vocabulary) * (sizeof(float) + sizeof(Candidate) + 16);
}

Result<Drawn> Sampler::Draw(const SamplingParams& params, const SamplerState& state, int choice,
                            int logprobs, std::span<const float> logits) {
  Drawn drawn;
  NIBBLE_TRY(drawn.id, MostProbable(*kernels_, logits));
  std::span<const float> effective = logits;
  if (!params.logit_bias.empty() || HasPenalties(params)) {
    std::ranges::copy(logits, changed_.begin());
    ApplyBiasAndPenalties(params, state, changed_);
    effective = changed_;
    NIBBLE_TRY(drawn.id, MostProbable(*kernels_, effective));
  }
  if (params.temperature >= kLeastTemperature) {
    drawn.id = DrawRandom(params, state, choice, effective);
  }
  if (logprobs < 0) return drawn;
  Logprobs of = LogprobsOf(*kernels_, logits, drawn.id, logprobs);
  drawn.logprob = of.own;
  drawn.top = std::move(of.top);
  return drawn;
}

TokenId Sampler::DrawRandom(const SamplingParams& params, const SamplerState& state, int choice,
                            std::span<const float> logits) const {
  return DrawGumbelMax(Filter(params, logits), params.temperature,
                       DrawKey(params.seed, choice, state.position()));
}

// The first filter of a large vocabulary works on the row itself, the others on what it leaves.
Candidates Sampler::Filter(const SamplingParams& params, std::span<const float> logits) const {
  Candidates candidates;
  if (params.top_k == 0 && params.typical_p >= 1 && params.top_p < 1) {
    candidates = NucleusOf(*kernels_, logits, params.top_p);
    KeepMinP(candidates, params.min_p);
    return candidates;
  }
  if (params.top_k == 0 && params.typical_p >= 1 && params.min_p > 0) {
    return MinPOf(*kernels_, logits, params.min_p);
  }
  candidates = TopOf(*kernels_, logits, params.top_k);
  if (params.typical_p < 1) {
    KeepTypical(
        candidates, params.typical_p,
        params.top_k == 0 ? ComputeLogSumExp(*kernels_, logits).log_sum_exp : LogTotal(candidates));
  }
  if (params.top_p < 1) KeepTopP(candidates, params.top_p, LogTotal(candidates));
  KeepMinP(candidates, params.min_p);
  return candidates;
}

}  // namespace nibble
