#pragma once

#include <map>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/token_list.h"
#include "engine/request.h"

namespace nibble {

class Tokenizer;

// DRY ("don't repeat yourself", p-e-w 2024; llama.cpp's rules): penalties of tokens that would
// continue a repetition.

// The tokens in which sequence breakers can end: a breaker's text may begin inside one token and go
// on in others. Behind each first token the tails that make it a breaker; an empty one: it holds
// the whole text.
using DryBreakers = std::map<TokenId, std::vector<std::vector<TokenId>>>;

inline constexpr size_t kMostDryBreakers = 64;
inline constexpr size_t kMostDryBreakerBytes = 40;

// Errors: too many breakers, an empty or long one.
Status CheckDryBreakers(std::span<const std::string> texts);

// One pass over the vocabulary for each breaker. Errors: those of CheckDryBreakers.
Result<DryBreakers> FindDryBreakers(std::span<const std::string> texts, const Tokenizer& tokenizer);

// Tokens that would continue a repetition of `length` tokens, the longest each.
struct DryRepetition {
  TokenId next;
  int length = 0;
};
// Of the last `window` tokens (-1: all); in order of ids. Time linear in the window.
std::vector<DryRepetition> FindRepetitions(const TokenList& tokens, int window, int least,
                                           const DryBreakers& breakers);

// logit -= multiplier · base^(length - allowed_length).
void ApplyDry(const SamplingParams& params, const DryBreakers& breakers, const TokenList& tokens,
              std::span<float> logits);

}  // namespace nibble
