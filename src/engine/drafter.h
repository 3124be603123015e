#pragma once

#include <span>
#include <vector>

#include "base/ids.h"
#include "base/token_list.h"
#include "engine/prepared_sampling.h"
#include "engine/sampler_state.h"
#include "kv/page_book.h"

namespace nibble {

// An answer whose next tokens are to be guessed.
struct DraftQuery {
  RequestId sequence;  // the scheduler's
  TokenList tokens;    // known ones
  int most = 0;        // tokens wanted, at least 1
  int choice = 0;
  const PreparedSampling* sampling = nullptr;
  const SamplerState* state = nullptr;
};

struct Draft {
  std::vector<TokenId> tokens;
  std::vector<double> chances;  // of each that it is right when all before it are
};

// Guesses what comes next. A guess never changes an answer, only how many of its tokens a step
// gives. Called on the engine's thread, before each step.
class Drafter {
 public:
  virtual ~Drafter() = default;
  // One draft for each query, in order; an empty one: no idea.
  virtual void Propose(std::span<const DraftQuery> queries, std::vector<Draft>& drafts) = 0;
  // The sequence has ended, or its answer is not guessed any more.
  virtual void Forget(RequestId sequence) = 0;
  // Per KV group of a draft model: pages that ever held anything.
  virtual std::vector<FormPages> Touched() const { return {}; }
};

}  // namespace nibble
