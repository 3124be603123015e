#pragma once

#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/dry.h"
#include "engine/request.h"

namespace nibble {

class Tokenizer;

inline constexpr size_t kMostBadWords = 1024;
inline constexpr size_t kMostBadWordBytes = 1000;

// Sampling parameters with what follows from them and the vocabulary. Made once for a request.
struct PreparedSampling {
  SamplingParams params;
  std::vector<TokenId> ends;                    // not drawn before min_tokens
  std::vector<std::vector<TokenId>> bad_words;  // the last token is forbidden behind the others
  DryBreakers breakers;
};

// Errors: too many words, an empty or long one.
Status CheckBadWords(std::span<const std::string> words);

// Errors name the parameter: those of CheckBadWords and CheckDryBreakers, a word without tokens.
Result<PreparedSampling> PrepareSampling(SamplingParams params, const Tokenizer& tokenizer);

// The ids of text for logit_bias: those of its tokens, once each.
Result<std::vector<TokenId>> BiasedTokens(std::string_view text, const Tokenizer& tokenizer);

}  // namespace nibble
