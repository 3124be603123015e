#include "engine/form_drafter.h"

#include <algorithm>
#include <string_view>

#include "tokenizer/tokenizer.h"

namespace nibble {
namespace {

constexpr size_t kMostBytes = 256;
// Tokens before the forced bytes that are written together with them.
constexpr int kContext = 4;
constexpr std::array kPriors = {1.0, 0.95, 0.6, 0.3};

// The tokens of `forced` as the tokenizer writes it behind `before`; empty where its tokens do not
// begin there.
std::vector<TokenId> TokensBehind(const Tokenizer& tokenizer, std::string_view before,
                                  std::string_view forced) {
  std::string text(before);
  text += forced;
  const auto ids = tokenizer.Encode(text, {.add_special = false, .parse_special = false});
  if (!ids) return {};
  // From the end: before the beginning the encoder may have put a space.
  std::string_view left = forced;
  for (size_t i = ids->size(); i-- > 0;) {
    const std::string_view bytes = tokenizer.Bytes((*ids)[i]);
    if (!left.ends_with(bytes)) return {};
    left.remove_suffix(bytes.size());
    if (left.empty()) return {ids->begin() + static_cast<std::ptrdiff_t>(i), ids->end()};
  }
  return {};
}

}  // namespace

double FormDrafter::Chance(const Answer& answer, Kind kind) const {
  if (kind == Kind::kOnly) return 1;
  const auto k = static_cast<size_t>(kind);
  return answer.chances[k].Chance(all_[k].Chance(kPriors[k]));
}

void FormDrafter::Learn(Answer& answer, const TokenList& tokens) {
  const int come = std::min(tokens.size() - answer.known, static_cast<int>(answer.guessed.size()));
  for (int i = 0; i < come; ++i) {
    const Guess& guess = answer.guessed[static_cast<size_t>(i)];
    const bool right = tokens[answer.known + i] == guess.token;
    answer.chances[static_cast<size_t>(guess.kind)].Count(right);
    all_[static_cast<size_t>(guess.kind)].Count(right);
    if (!right) break;
  }
  answer.guessed.clear();
}

std::vector<FormDrafter::Guess> FormDrafter::GuessAhead(const DraftQuery& query) const {
  const auto most = static_cast<size_t>(query.most);
  const ConstraintTrail::Ahead ahead = query.state->trail().LookAhead(most, kMostBytes);
  std::vector<Guess> guesses;
  for (const TokenId token : ahead.only) guesses.push_back({token, Kind::kOnly});
  if (ahead.bytes.empty() || guesses.size() >= most) return guesses;
  const std::span answer = query.tokens.answer;
  std::vector<TokenId> behind(answer.end() - std::min<std::ptrdiff_t>(std::ssize(answer), kContext),
                              answer.end());
  behind.insert(behind.end(), ahead.only.begin(), ahead.only.end());
  std::string before;
  for (const TokenId token : behind) {
    if (tokenizer_.IsControl(token)) {
      before.clear();
    } else {
      before += tokenizer_.Bytes(token);
    }
  }
  std::vector<TokenId> ids = TokensBehind(tokenizer_, before, ahead.bytes);
  if (ids.empty()) ids = TokensBehind(tokenizer_, "", ahead.bytes);
  for (size_t i = 0; i < ids.size() && guesses.size() < most; ++i) {
    const bool last = i + 1 == ids.size();
    const bool space = tokenizer_.Bytes(ids[i]) == " ";
    guesses.push_back({ids[i], !last ? Kind::kInside : space ? Kind::kSpace : Kind::kLast});
  }
  return guesses;
}

void FormDrafter::Propose(std::span<const DraftQuery> queries, std::vector<Draft>& drafts) {
  drafts.resize(queries.size());
  for (size_t q = 0; q < queries.size(); ++q) {
    const DraftQuery& query = queries[q];
    Draft& draft = drafts[q];
    draft.tokens.clear();
    draft.chances.clear();
    if (!query.state->constrained()) continue;
    Answer& answer = answers_[query.sequence];
    Learn(answer, query.tokens);
    answer.guessed = GuessAhead(query);
    answer.known = query.tokens.size();
    for (const Guess& guess : answer.guessed) {
      draft.tokens.push_back(guess.token);
      draft.chances.push_back(Chance(answer, guess.kind));
    }
  }
}

}  // namespace nibble
