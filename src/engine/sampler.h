#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/candidates.h"
#include "engine/prepared_sampling.h"
#include "engine/request.h"
#include "engine/sampler_state.h"

namespace nibble {

struct KernelTable;

// Numbers in range and not NaN, ids inside the vocabulary, no two that exclude each other; the
// message names the parameter.
Status CheckSampling(const SamplingParams& params, int vocabulary);

// The logits after bias and penalties, which are applied in this order to the tokens they name:
// logit += bias; then, for a token seen c > 0 times in the state's window, logit /= or *= the
// repetition penalty (towards less probable), logit -= c · frequency + presence.
void ApplyBiasAndPenalties(const SamplingParams& params, const SamplerState& state,
                           std::span<float> logits);

// Whether any of the penalties is set: without one nobody asks which tokens there were.
bool HasPenalties(const SamplingParams& params);

// The most probable token, ties to the lower id. Error: NaN or +infinity among the logits, or
// nothing but -infinity; the message is about a row of logits.
Result<TokenId> MostProbable(const KernelTable& kernels, std::span<const float> logits);

// -infinity for what may not be drawn at the state's position: end tokens before min_tokens, and
// the last token of a bad word behind the others.
void ForbidTokens(const PreparedSampling& sampling, const SamplerState& state,
                  std::span<float> logits);

// What the filters leave of a row of logits, and the temperature that it is drawn at; 0: the most
// probable of them.
struct Survivors {
  Candidates candidates;
  double temperature = 0;
};

struct Drawn {
  TokenId id;
  float logprob = 0;
  std::vector<TokenLogprob> top;
  std::optional<double> mirostat;  // its target from here on, for SamplerState::Accept
  bool ends_form = false;          // nothing may follow, as Generation::Draw finds
};

// Draws tokens; holds the buffers for one row of logits. What is drawn depends on the arguments of
// Draw alone.
class Sampler {
 public:
  Sampler(int vocabulary, const KernelTable& kernels);
  // Bytes of the buffers at their largest.
  static size_t Bytes(int vocabulary);

  // One token from a row of logits [vocabulary]. choice and state.position() key the random
  // numbers. logprobs: as Request::logprobs. Errors: those of MostProbable and of the state's
  // constraint (grammar/constraint.h).
  Result<Drawn> Draw(const PreparedSampling& sampling, const SamplerState& state, int choice,
                     int logprobs, std::span<const float> logits);

 private:
  // Into changed_: the logits, -infinity where the state's constraint lets no token follow.
  Status ApplyConstraint(const SamplerState& state, std::span<const float> logits);
  Survivors Filter(const SamplingParams& params, const SamplerState& state, const DrawKey& key,
                   std::span<const float> logits) const;
  Candidates FilterRow(const SamplingParams& params, std::span<const float> logits) const;

  const KernelTable* kernels_;
  std::vector<float> changed_;  // [vocabulary] logits after bias and penalties
};

}  // namespace nibble
