#include "engine/ngram_drafter.h"

#include <algorithm>

namespace nibble {
namespace {

// Shortest matches of each kind but the first, and what to expect of them at first.
constexpr std::array kKindBegins = {3, 4, 6, 9, 16};
constexpr std::array kPriors = {0.2, 0.3, 0.45, 0.6, 0.75, 0.85};

size_t KindOf(int length) {
  return static_cast<size_t>(std::ranges::upper_bound(kKindBegins, length) - kKindBegins.begin());
}

}  // namespace

double NgramDrafter::Chance(const Answer& answer, int length) const {
  const size_t kind = KindOf(length);
  return answer.chances[kind].Chance(all_[kind].Chance(kPriors[kind]));
}

void NgramDrafter::Learn(Answer& answer, const TokenList& tokens) {
  const int come = std::min(tokens.size() - answer.known, static_cast<int>(answer.guessed.size()));
  for (int i = 0; i < come; ++i) {
    const bool right = tokens[answer.known + i] == answer.guessed[static_cast<size_t>(i)];
    const size_t kind = KindOf(answer.length + i);
    answer.chances[kind].Count(right);
    all_[kind].Count(right);
    if (!right) break;
  }
  answer.guessed.clear();
}

void NgramDrafter::Propose(std::span<const DraftQuery> queries, std::vector<Draft>& drafts) {
  drafts.resize(queries.size());
  for (size_t q = 0; q < queries.size(); ++q) {
    const DraftQuery& query = queries[q];
    Draft& draft = drafts[q];
    draft.tokens.clear();
    draft.chances.clear();
    Answer& answer = answers_[query.sequence];
    Learn(answer, query.tokens);
    const SuffixIndex::Match match = answer.index.Find(query.tokens);
    if (match.length == 0) continue;
    const int behind = query.tokens.size() - match.end;
    for (int i = 0; i < query.most; ++i) {
      draft.tokens.push_back(i < behind ? query.tokens[match.end + i]
                                        : draft.tokens[static_cast<size_t>(i - behind)]);
      draft.chances.push_back(Chance(answer, match.length + i));
    }
    answer.guessed = draft.tokens;
    answer.known = query.tokens.size();
    answer.length = match.length;
  }
}

}  // namespace nibble
