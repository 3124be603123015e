#include "engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>

#include "engine/candidates.h"
#include "kernels/elementwise.h"
#include "kernels/sampling.h"
#include "kernels/scalar_math.h"

namespace nibble {
namespace {

// Below this a temperature divides logits to infinity; it counts as 0.
constexpr float kLeastTemperature = 1e-6F;

Status CheckRange(const char* name, double value, double low, double high) {
  if (value >= low && value <= high) return {};
  return BadInput("{} is {}, expected a number from {} to {}", name, value, low, high);
}

constexpr int kMostInt = std::numeric_limits<int>::max();
constexpr double kMost = 1e6;

Status CheckNewerSamplers(const SamplingParams& p) {
  NIBBLE_RETURN_IF_ERROR(CheckRange("top_n_sigma", p.top_n_sigma, -kMost, kMost));
  NIBBLE_RETURN_IF_ERROR(CheckRange("xtc_probability", p.xtc_probability, 0, 1));
  NIBBLE_RETURN_IF_ERROR(CheckRange("xtc_threshold", p.xtc_threshold, 0, 1));
  NIBBLE_RETURN_IF_ERROR(CheckRange("dynatemp_range", p.dynatemp_range, 0, kMost));
  NIBBLE_RETURN_IF_ERROR(CheckRange("dynatemp_exponent", p.dynatemp_exponent, 0, kMost));
  NIBBLE_RETURN_IF_ERROR(CheckRange("dry_multiplier", p.dry_multiplier, 0, kMost));
  NIBBLE_RETURN_IF_ERROR(CheckRange("dry_base", p.dry_base, 1, kMost));
  NIBBLE_RETURN_IF_ERROR(CheckRange("dry_allowed_length", p.dry_allowed_length, 0, kMostInt));
  NIBBLE_RETURN_IF_ERROR(CheckRange("dry_penalty_last_n", p.dry_penalty_last_n, -1, kMostInt));
  return CheckRange("min_tokens", p.min_tokens, 0, kMostInt);
}

Status CheckMirostat(const SamplingParams& p) {
  if (p.mirostat != 0 && p.mirostat != 2) {
    return BadInput("mirostat is {}, expected 0 or 2 (mirostat 1 is not supported)", p.mirostat);
  }
  NIBBLE_RETURN_IF_ERROR(CheckRange("mirostat_tau", p.mirostat_tau, 0, kMost));
  NIBBLE_RETURN_IF_ERROR(CheckRange("mirostat_eta", p.mirostat_eta, 0, kMost));
  if (p.mirostat == 0) return {};
  const auto refuse = [](const char* name) {
    return BadInput("mirostat is 2 and does not go with {}: it takes the place of the filters",
                    name);
  };
  if (p.xtc_probability > 0) return refuse("xtc_probability");
  if (p.dynatemp_range > 0) return refuse("dynatemp_range");
  if (p.top_n_sigma > 0) return refuse("top_n_sigma");
  return {};
}

bool ChangesLogits(const PreparedSampling& sampling) {
  const SamplingParams& p = sampling.params;
  return !p.logit_bias.empty() || HasPenalties(p) || p.dry_multiplier != 0 ||
         !sampling.bad_words.empty() || !sampling.ends.empty();
}

// Bits of surprise up to which mirostat keeps tokens; 2 tau before the first.
double MirostatTarget(const SamplingParams& p, const SamplerState& state) {
  return state.mirostat().value_or(2 * double{p.mirostat_tau});
}

constexpr uint32_t kExponent = 0x7F800000;
constexpr uint32_t kMinusInfinity = 0xFF800000;

}  // namespace

Status CheckSampling(const SamplingParams& p, int vocabulary) {
  NIBBLE_RETURN_IF_ERROR(CheckRange("temperature", p.temperature, 0, kMost));
  NIBBLE_RETURN_IF_ERROR(CheckRange("top_k", p.top_k, 0, kMostInt));
  NIBBLE_RETURN_IF_ERROR(CheckRange("top_p", p.top_p, 0, 1));
  NIBBLE_RETURN_IF_ERROR(CheckRange("min_p", p.min_p, 0, 1));
  NIBBLE_RETURN_IF_ERROR(CheckRange("typical_p", p.typical_p, 0, 1));
  NIBBLE_RETURN_IF_ERROR(CheckRange("repetition_penalty", p.repetition_penalty, 1e-6, kMost));
  NIBBLE_RETURN_IF_ERROR(CheckRange("presence_penalty", p.presence_penalty, -kMost, kMost));
  NIBBLE_RETURN_IF_ERROR(CheckRange("frequency_penalty", p.frequency_penalty, -kMost, kMost));
  NIBBLE_RETURN_IF_ERROR(CheckRange("penalty_last_n", p.penalty_last_n, -1, kMostInt));
  NIBBLE_RETURN_IF_ERROR(CheckNewerSamplers(p));
  NIBBLE_RETURN_IF_ERROR(CheckMirostat(p));
  NIBBLE_RETURN_IF_ERROR(CheckDryBreakers(p.dry_sequence_breakers));
  NIBBLE_RETURN_IF_ERROR(CheckBadWords(p.bad_words));
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

void ForbidTokens(const PreparedSampling& sampling, const SamplerState& state,
                  std::span<float> logits) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  const std::span<const TokenId> answer = state.tokens().answer;
  if (answer.size() < static_cast<size_t>(sampling.params.min_tokens)) {
    for (const TokenId id : sampling.ends) logits[static_cast<size_t>(id.value())] = kNever;
  }
  for (const std::vector<TokenId>& word : sampling.bad_words) {
    const size_t before = word.size() - 1;
    if (before > answer.size()) continue;
    if (std::ranges::equal(answer.last(before), std::span(word).first(before))) {
      logits[static_cast<size_t>(word.back().value())] = kNever;
    }
  }
}

Sampler::Sampler(int vocabulary, const KernelTable& kernels)
    : kernels_(&kernels), changed_(static_cast<size_t>(vocabulary)) {}

size_t Sampler::Bytes(int vocabulary) {
  // Changed logits, all candidates, and their ranks in typical sampling.
  return static_cast<size_t>(vocabulary) * (sizeof(float) + sizeof(Candidate) + 16);
}

Result<Drawn> Sampler::Draw(const PreparedSampling& sampling, const SamplerState& state, int choice,
                            int logprobs, std::span<const float> logits) {
  const SamplingParams& params = sampling.params;
  Drawn drawn;
  NIBBLE_TRY(drawn.id, MostProbable(*kernels_, logits));
  std::span<const float> effective = logits;
  if (state.constrained() || ChangesLogits(sampling)) {
    if (state.constrained()) {
      NIBBLE_RETURN_IF_ERROR(ApplyConstraint(state, logits));
    } else {
      std::ranges::copy(logits, changed_.begin());
    }
    ApplyBiasAndPenalties(params, state, changed_);
    ApplyDry(params, sampling.breakers, state.tokens(), changed_);
    ForbidTokens(sampling, state, changed_);
    effective = changed_;
    NIBBLE_TRY(drawn.id, MostProbable(*kernels_, effective));
  }
  if (params.temperature >= kLeastTemperature || params.dynatemp_range > 0 ||
      params.xtc_probability > 0) {
    const DrawKey key(params.seed, choice, state.position());
    const Survivors left = Filter(params, state, key, effective);
    drawn.id = left.temperature >= kLeastTemperature
                   ? DrawGumbelMax(left.candidates, left.temperature, key)
                   : std::ranges::min_element(left.candidates, MoreProbable)->id;
    if (params.mirostat == 2) {
      const double error =
          SurpriseOf(left.candidates, left.temperature, drawn.id) - double{params.mirostat_tau};
      drawn.mirostat = MirostatTarget(params, state) - double{params.mirostat_eta} * error;
    }
  }
  if (logprobs < 0) return drawn;
  Logprobs of = LogprobsOf(*kernels_, logits, drawn.id, logprobs);
  drawn.logprob = of.own;
  drawn.top = std::move(of.top);
  return drawn;
}

Status Sampler::ApplyConstraint(const SamplerState& state, std::span<const float> logits) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  NIBBLE_TRY(const auto mask, state.trail().Mask());
  for (size_t word = 0; word * 64 < logits.size(); ++word) {
    const uint64_t bits = word < mask->bits.size() ? mask->bits[word] : 0;
    const size_t begin = word * 64;
    const size_t count = std::min<size_t>(64, logits.size() - begin);
    float* out = changed_.data() + begin;
    if (bits == 0) {
      std::fill_n(out, count, kNever);
    } else if (bits == ~uint64_t{0}) {
      std::copy_n(logits.data() + begin, count, out);
    } else {
      for (size_t i = 0; i < count; ++i) {
        out[i] = (bits >> i & 1) != 0 ? logits[begin + i] : kNever;
      }
    }
  }
  return {};
}

Survivors Sampler::Filter(const SamplingParams& params, const SamplerState& state,
                          const DrawKey& key, std::span<const float> logits) const {
  Survivors left;
  left.temperature = double{params.temperature};
  if (params.mirostat == 2) {
    left.candidates = TopOf(*kernels_, logits, 0);
    KeepUnsurprising(left.candidates, left.temperature, MirostatTarget(params, state));
    return left;
  }
  left.candidates = FilterRow(params, logits);
  if (params.xtc_probability > 0 &&
      DrawKey::Uniform(key.Bits(kNoToken)) <= double{params.xtc_probability}) {
    ExcludeTopChoices(left.candidates, double{params.xtc_threshold});
  }
  if (params.dynatemp_range > 0 && left.candidates.size() > 1) {
    const double low = std::max(left.temperature - double{params.dynatemp_range}, 0.0);
    const double high = left.temperature + double{params.dynatemp_range};
    const double share = NormalizedEntropy(left.candidates);
    const double exponent = double{params.dynatemp_exponent};
    left.temperature = low + (high - low) * (share > 0 ? Pow(share, exponent) : exponent == 0);
  }
  return left;
}

// The first filter of a large vocabulary works on the row itself, the others on what it leaves.
Candidates Sampler::FilterRow(const SamplingParams& params, std::span<const float> logits) const {
  Candidates candidates;
  const bool sigma = params.top_n_sigma > 0;
  const bool only_masses = !sigma && params.top_k == 0 && params.typical_p >= 1;
  if (only_masses && params.top_p < 1) {
    candidates = NucleusOf(*kernels_, logits, params.top_p);
    KeepMinP(candidates, params.min_p);
    return candidates;
  }
  if (only_masses && params.min_p > 0) return MinPOf(*kernels_, logits, params.min_p);
  if (sigma) {
    candidates = NSigmaOf(*kernels_, logits, double{params.top_n_sigma});
    KeepTopK(candidates, params.top_k);
  } else {
    candidates = TopOf(*kernels_, logits, params.top_k);
  }
  if (params.typical_p < 1) {
    KeepTypical(candidates, params.typical_p,
                params.top_k == 0 && !sigma ? ComputeLogSumExp(*kernels_, logits).log_sum_exp
                                            : LogTotal(candidates));
  }
  if (params.top_p < 1) KeepTopP(candidates, params.top_p, LogTotal(candidates));
  KeepMinP(candidates, params.min_p);
  return candidates;
}

}  // namespace nibble
