#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "tokenizer/tokenizer.h"

namespace nibble {

// A text and what a tokenizer makes of it.
struct TokenizerSample {
  std::string text;
  std::vector<TokenId> ids;
};

// The texts by which two tokenizers are told apart: the vocabulary itself and, if `texts`, one of
// contractions, digits, white space, other scripts and code, and the caller's.
std::vector<TokenizerSample> TokenizerSamples(const Tokenizer& tokenizer, std::string_view more,
                                              bool texts);

// The first sample that `found` does not cut as `tokenizer` does, or joins otherwise; null: none.
const TokenizerSample* FindDifference(const Tokenizer& found, const Tokenizer& tokenizer,
                                      const std::vector<TokenizerSample>& samples);

}  // namespace nibble
