#pragma once

#include <array>
#include <unordered_map>

#include "engine/acceptance.h"
#include "engine/drafter.h"
#include "engine/suffix_index.h"

namespace nibble {

// Guesses that what followed the last tokens before follows them again (prompt lookup decoding,
// Saxena 2023), at their longest match in prompt and answer. Where the match ends at the end of the
// text, the text is taken to repeat itself.
//
// What it guessed is compared with what came, verified or not, so that the chances are always up to
// date and cost nothing: by length of the match, in this answer and, as its prior, in all.
class NgramDrafter : public Drafter {
 public:
  void Propose(std::span<const DraftQuery> queries, std::vector<Draft>& drafts) override;
  void Forget(RequestId sequence) override { answers_.erase(sequence); }

 private:
  static constexpr int kKinds = 6;  // of match lengths
  using Chances = std::array<Acceptance, kKinds>;
  struct Answer {
    SuffixIndex index;
    Chances chances;
    std::vector<TokenId> guessed;  // last time
    int known = 0;                 // tokens then
    int length = 0;                // of the match then
  };
  void Learn(Answer& answer, const TokenList& tokens);
  double Chance(const Answer& answer, int length) const;

  std::unordered_map<RequestId, Answer> answers_;
  Chances all_;
};

}  // namespace nibble
