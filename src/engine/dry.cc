#include "engine/dry.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "kernels/scalar_math.h"
#include "tokenizer/tokenizer.h"

namespace nibble {
namespace {

constexpr size_t kMostTail = 20;       // tokens, as llama.cpp
constexpr double kLargest = 88.72283;  // ln of the largest float: penalties stay finite

// Whether a breaker's text begins at byte `at` of a token and goes on behind its end.
bool BeginsInside(std::string_view token, size_t at, std::string_view text) {
  const std::string_view rest = token.substr(at);
  return rest.size() < text.size() && text.starts_with(rest);
}

Status AddBreaker(std::string_view text, const Tokenizer& tokenizer, DryBreakers& breakers) {
  for (int i = 0; i < tokenizer.vocab_size(); ++i) {
    const TokenId id{i};
    const std::string_view bytes = tokenizer.Bytes(id);
    if (bytes.find(text) != bytes.npos) {
      breakers[id].emplace_back();
      continue;
    }
    for (size_t at = bytes.find(text[0]); at != bytes.npos; at = bytes.find(text[0], at + 1)) {
      if (!BeginsInside(bytes, at, text)) continue;
      NIBBLE_TRY(std::vector<TokenId> tail,
                 tokenizer.Encode(text.substr(bytes.size() - at),
                                  {.add_special = false, .parse_special = false}));
      tail.resize(std::min(tail.size(), kMostTail));
      auto& tails = breakers[id];
      if (std::ranges::find(tails, tail) == tails.end()) tails.push_back(std::move(tail));
    }
  }
  return {};
}

// Tokens behind the last breaker of the last n tokens, the breaker's own not counted; n without.
int BehindBreaker(const TokenList& tokens, int n, const DryBreakers& breakers) {
  const int size = tokens.size();
  for (int back = 0; back < n && !breakers.empty(); ++back) {
    const auto found = breakers.find(tokens[size - 1 - back]);
    if (found == breakers.end()) continue;
    int longest = -1;
    for (const std::vector<TokenId>& tail : found->second) {
      const int length = static_cast<int>(tail.size());
      if (length <= longest || length > back) continue;
      bool equal = true;
      for (int i = 0; i < length && equal; ++i) {
        equal = tail[static_cast<size_t>(i)] == tokens[size - back + i];
      }
      if (equal) longest = length;
    }
    if (longest >= 0) return back - longest;
  }
  return n;
}

}  // namespace

Status CheckDryBreakers(std::span<const std::string> texts) {
  if (texts.size() > kMostDryBreakers) {
    return BadInput("dry_sequence_breakers has {} texts, expected at most {}", texts.size(),
                    kMostDryBreakers);
  }
  for (const std::string& text : texts) {
    if (!text.empty() && text.size() <= kMostDryBreakerBytes) continue;
    return BadInput("dry_sequence_breakers has a text of {} bytes, expected 1 to {}", text.size(),
                    kMostDryBreakerBytes);
  }
  return {};
}

Result<DryBreakers> FindDryBreakers(std::span<const std::string> texts,
                                    const Tokenizer& tokenizer) {
  NIBBLE_RETURN_IF_ERROR(CheckDryBreakers(texts));
  DryBreakers breakers;
  for (const std::string& text : texts) {
    NIBBLE_RETURN_IF_ERROR(AddBreaker(text, tokenizer, breakers));
  }
  return breakers;
}

std::vector<DryRepetition> FindRepetitions(const TokenList& tokens, int window, int least,
                                           const DryBreakers& breakers) {
  const int size = tokens.size();
  const int n = window < 0 ? size : std::min(size, window);
  if (n <= least) return {};
  const int limit = BehindBreaker(tokens, n, breakers);
  if (limit < least) return {};
  // The Z-algorithm over the tokens from the last one back: z[i] = how many tokens before the one i
  // places back, that one included, equal the last ones.
  const auto at = [&](int i) { return tokens[size - 1 - i]; };
  std::vector<int> z(static_cast<size_t>(n), 0);
  std::map<TokenId, int> longest;
  for (int i = 1, left = 0, right = 0; i < n; ++i) {  // [left, right): the match that ends last
    int length = i < right ? std::min(right - i, z[static_cast<size_t>(i - left)]) : 0;
    while (i + length < n && at(length) == at(i + length)) ++length;
    z[static_cast<size_t>(i)] = length;
    if (i + length > right) {
      left = i;
      right = i + length;
    }
    if (std::min(length, limit) < least) continue;
    int& own = longest[at(i - 1)];  // what came next then
    own = std::max(own, std::min(length, limit));
  }
  std::vector<DryRepetition> repetitions;
  for (const auto& [next, length] : longest) repetitions.push_back({next, length});
  return repetitions;
}

void ApplyDry(const SamplingParams& params, const DryBreakers& breakers, const TokenList& tokens,
              std::span<float> logits) {
  if (params.dry_multiplier == 0 || params.dry_penalty_last_n == 0) return;
  const double log_base = Log(double{params.dry_base});
  for (const DryRepetition& repetition :
       FindRepetitions(tokens, params.dry_penalty_last_n, params.dry_allowed_length, breakers)) {
    const int over = repetition.length - params.dry_allowed_length;
    const double power = Exp(std::min(over * log_base, kLargest));
    float& logit = logits[static_cast<size_t>(repetition.next.value())];
    // Finite, so that a token stays possible where nothing else is.
    constexpr double kLeast = -1e30;
    if (double{logit} < kLeast) continue;
    logit =
        static_cast<float>(std::max(double{logit} - double{params.dry_multiplier} * power, kLeast));
  }
}

}  // namespace nibble
