#pragma once

#include <span>
#include <vector>

#include "base/ids.h"
#include "engine/random.h"
#include "engine/request.h"

namespace nibble {

struct KernelTable;

struct Candidate {
  TokenId id;
  float logit = 0;
};

// Higher logit first, ties to the lower id: the one order that all samplers use.
inline bool MoreProbable(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// The tokens that may still be drawn. Samplers below take a non-empty list in any order and keep at
// least one token; probabilities are the softmax over the list as it is then. None of them uses
// libm's exp or log, and sums run in a fixed order, so that the kept set is the same on every
// machine.
using Candidates = std::vector<Candidate>;

// ln Σ exp(logit) of a list.
double LogTotal(const Candidates& candidates);

// The k most probable tokens of a row of logits, most probable first; k <= 0: all of them, in order
// of ids. Tokens of -infinity are left out; there is no NaN. The row is never sorted.
Candidates TopOf(const KernelTable& kernels, std::span<const float> logits, int k);

// Log-probabilities of a row of logits: the token's own and those of the `top` most probable, most
// probable first.
struct Logprobs {
  float own = 0;
  std::vector<TokenLogprob> top;
};
Logprobs LogprobsOf(const KernelTable& kernels, std::span<const float> logits, TokenId token,
                    int top);

// Keeps the smallest set of most probable tokens whose probability reaches p (nucleus sampling,
// Holtzman et al. 2020), most probable first. log_total: LogTotal of the list, or of a longer one
// of which this is the most probable part: then false means that this part does not reach p.
bool KeepTopP(Candidates& candidates, double p, double log_total);

// Keeps tokens of at least p times the largest probability (Nguyen et al. 2024).
void KeepMinP(Candidates& candidates, double p);

// KeepTopP over the whole row, without a list of all of it.
Candidates NucleusOf(const KernelTable& kernels, std::span<const float> logits, double p);

// KeepMinP over the whole row, without a list of all of it.
Candidates MinPOf(const KernelTable& kernels, std::span<const float> logits, double p);

// Locally typical sampling (Meister et al. 2022): keeps the smallest set of tokens whose
// information is closest to the entropy and whose probability exceeds p, closest first.
void KeepTypical(Candidates& candidates, double p, double log_total);

// The k most probable tokens of a list, in no order.
void KeepTopK(Candidates& candidates, int k);

// Top-n-sigma (Tang et al. 2024) over a whole row: tokens whose logit is at least the largest less
// n standard deviations of all logits that are not -infinity.
Candidates NSigmaOf(const KernelTable& kernels, std::span<const float> logits, double n);

// XTC ("exclude top choices", p-e-w 2024): of the tokens of at least this probability all but the
// least probable are left out.
void ExcludeTopChoices(Candidates& candidates, double threshold);

// The entropy of a list over the largest that one of its size can have, from 0 to 1; 0 for one
// token.
double NormalizedEntropy(const Candidates& candidates);

// Mirostat 2 (Basu et al. 2021): keeps tokens whose surprise, in bits, at the temperature is at
// most `target`, and at least the most probable one. They stand most probable first.
void KeepUnsurprising(Candidates& candidates, double temperature, double target);

// Surprise in bits of a token of the list at the temperature.
double SurpriseOf(const Candidates& candidates, double temperature, TokenId token);

// The list's draw at a temperature > 0: argmax of logit / temperature + Gumbel noise, the noise of
// a token being -ln(-ln u) with u = DrawKey::Uniform(key.Bits(id)). Distributed as the softmax of
// logit / temperature; ties to the lower id.
TokenId DrawGumbelMax(const Candidates& candidates, double temperature, const DrawKey& key);

}  // namespace nibble
