#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/shared_tokens.h"
#include "engine/request.h"
#include "engine/sampler.h"
#include "engine/sampler_state.h"
#include "engine/stop_matcher.h"
#include "tokenizer/tokenizer.h"

namespace nibble {

// A request that has been checked, with everything that its choices share. Made once, on the thread
// that submits it: the engine's thread must not copy or count prompts.
struct AcceptedRequest {
  AcceptedRequest(Request checked, PreparedSampling prepared, int max_new_tokens,
                  const Tokenizer& tokenizer);

  Request request;  // without its prompt and sampling parameters
  PreparedSampling sampling;
  SharedTokens prompt;   // that prompt
  int max_new = 0;       // most tokens of an answer
  int choices = 1;       // answers that are generated: n, or best_of
  SamplerState state;    // at the end of the prompt
  bool at_start = true;  // nothing but control tokens in the prompt
};

// One choice of a request on its way: turns drawn tokens into text and events, and knows when the
// answer ends. Times are seconds of one clock.
class Generation {
 public:
  struct Start {
    RequestId id;  // the caller's
    int choice = 0;
    double submitted_s = 0;
    int64_t queued_step = 0;
  };
  Generation(const Start& start, std::shared_ptr<const AcceptedRequest> accepted,
             std::shared_ptr<EventSink> sink, const Tokenizer& tokenizer);

  const Request& request() const { return accepted_->request; }
  RequestId id() const { return start_.id; }
  int choice() const { return start_.choice; }
  const PreparedSampling& sampling() const { return accepted_->sampling; }
  const SamplerState& state() const { return state_; }
  // Whether the token behind the last known one is wanted.
  bool WantsToken() const { return usage_.generated_tokens < accepted_->max_new; }

  // Next position whose logits Request::logits gets: none twice, even when it is computed again.
  int next_logit_position() const { return next_logit_position_; }
  void DeliveredLogits(int position) { next_logit_position_ = position + 1; }

  // As Request::logprobs, but choosing the best of several needs the tokens' own.
  int logprobs() const;

  // A step that computes rows of this sequence: when it begins, what the executor reads for it,
  // and how many positions the sequence took over when it was admitted.
  struct StepFacts {
    double now = 0;
    double weight_bytes = 0;
    double kv_bytes = 0;
    int taken = 0;
  };
  void OnStep(const StepFacts& step);
  void OnPreempted() { ++usage_.preemptions; }

  // Draws the next token from its row of logits: it is part of state() from then on.
  Result<Drawn> Draw(Sampler& sampler, std::span<const float> logits);
  // Whether the answer ends with the token, whatever its text is.
  bool EndsWith(TokenId token) const;
  // A token that was drawn: sends its event, and says why the answer ends, if it does.
  std::optional<FinishReason> Accept(const Drawn& drawn, double now);
  // Of its tokens so many were guessed, and so many of these rightly.
  void OnDraft(int drafted, int accepted);

  void EndedAt(int64_t step) { usage_.ended_step = step; }
  // The last event.
  void Finish(FinishReason reason, double now, std::optional<Error> error = std::nullopt);

 private:
  Start start_;
  std::shared_ptr<const AcceptedRequest> accepted_;
  std::shared_ptr<EventSink> sink_;
  const Tokenizer* tokenizer_;
  SamplerState state_;
  StreamingDetokenizer detokenizer_;
  StopMatcher stops_;
  int next_logit_position_;
  Usage usage_;
  std::optional<double> first_step_s_;
  std::optional<double> first_token_s_;
};

}  // namespace nibble
