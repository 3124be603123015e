#include "engine/prepared_sampling.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "tokenizer/tokenizer.h"

namespace nibble {
namespace {

constexpr EncodeOptions kPlain = {.add_special = false, .parse_special = false};

// As vLLM's: the word where a text begins, and behind a space.
Status AddBadWord(std::string_view word, const Tokenizer& tokenizer,
                  std::vector<std::vector<TokenId>>& out) {
  const size_t begin = std::min(word.find_first_not_of(' '), word.size());
  const std::string bare(begin < word.size() ? word.substr(begin) : word);
  for (const std::string& text : {bare, " " + bare}) {
    NIBBLE_TRY(std::vector<TokenId> ids, tokenizer.Encode(text, kPlain));
    if (ids.empty()) return BadInput("bad_words has a text without tokens");
    if (std::ranges::find(out, ids) == out.end()) out.push_back(std::move(ids));
  }
  return {};
}

}  // namespace

Status CheckBadWords(std::span<const std::string> words) {
  if (words.size() > kMostBadWords) {
    return BadInput("bad_words has {} texts, expected at most {}", words.size(), kMostBadWords);
  }
  for (const std::string& word : words) {
    if (!word.empty() && word.size() <= kMostBadWordBytes) continue;
    return BadInput("bad_words has a text of {} bytes, expected 1 to {}", word.size(),
                    kMostBadWordBytes);
  }
  return {};
}

Result<PreparedSampling> PrepareSampling(SamplingParams params, const Tokenizer& tokenizer) {
  PreparedSampling out;
  if (params.min_tokens > 0) {
    out.ends.assign(tokenizer.end_tokens().begin(), tokenizer.end_tokens().end());
  }
  NIBBLE_RETURN_IF_ERROR(CheckBadWords(params.bad_words));
  for (const std::string& word : params.bad_words) {
    NIBBLE_RETURN_IF_ERROR(AddBadWord(word, tokenizer, out.bad_words));
  }
  if (params.dry_multiplier != 0) {
    NIBBLE_TRY(out.breakers, FindDryBreakers(params.dry_sequence_breakers, tokenizer));
  }
  out.params = std::move(params);
  return out;
}

Result<std::vector<TokenId>> BiasedTokens(std::string_view text, const Tokenizer& tokenizer) {
  NIBBLE_TRY(std::vector<TokenId> ids, tokenizer.Encode(text, kPlain));
  if (ids.empty()) return BadInput("logit_bias names a text without tokens");
  std::ranges::sort(ids);
  const auto rest = std::ranges::unique(ids);
  ids.erase(rest.begin(), rest.end());
  return ids;
}

}  // namespace nibble
