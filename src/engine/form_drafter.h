#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/acceptance.h"
#include "engine/drafter.h"

namespace nibble {

class Tokenizer;

// Guesses what an answer's form forces: tokens that alone are allowed, and behind them the bytes
// that follow whatever is drawn, in the tokens that the tokenizer would write them in. The model
// still draws: a text has more than one way into tokens, and where forced bytes end its last token
// may go on. How often those guesses are right is learned, as for any draft.
class FormDrafter : public Drafter {
 public:
  // The tokenizer outlives this.
  explicit FormDrafter(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void Propose(std::span<const DraftQuery> queries, std::vector<Draft>& drafts) override;
  void Forget(RequestId sequence) override { answers_.erase(sequence); }

 private:
  // What a guess is: the only token; inside forced bytes; their last; their last and a space.
  enum class Kind : uint8_t { kOnly, kInside, kLast, kSpace };
  static constexpr size_t kKinds = 4;
  using Chances = std::array<Acceptance, kKinds>;
  struct Guess {
    TokenId token;
    Kind kind = Kind::kInside;
  };
  struct Answer {
    Chances chances;
    std::vector<Guess> guessed;  // last time
    int known = 0;               // tokens then
  };
  void Learn(Answer& answer, const TokenList& tokens);
  std::vector<Guess> GuessAhead(const DraftQuery& query) const;
  double Chance(const Answer& answer, Kind kind) const;

  const Tokenizer& tokenizer_;
  std::unordered_map<RequestId, Answer> answers_;
  Chances all_;
};

}  // namespace nibble
