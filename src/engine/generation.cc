#include "engine/generation.h"

#include <algorithm>
#include <utility>

namespace nibble {

AcceptedRequest::AcceptedRequest(Request checked, PreparedSampling prepared, int max_new_tokens,
                                 const Tokenizer& tokenizer)
    : request(std::move(checked)),
      sampling(std::move(prepared)),
      prompt(ShareTokens(std::exchange(request.prompt, {}))),
      max_new(max_new_tokens),
      choices(std::max(request.n, request.best_of)),
      state(HasPenalties(sampling.params) ? sampling.params.penalty_last_n : 0, prompt),
      // Behind nothing but control tokens (BOS) the answer is the text's beginning.
      at_start(std::ranges::all_of(*prompt, [&](TokenId id) { return tokenizer.IsControl(id); })) {}

std::string_view FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      break;
  }
  return "error";
}

Generation::Generation(const Start& start, std::shared_ptr<const AcceptedRequest> accepted,
                       std::shared_ptr<EventSink> sink, const Tokenizer& tokenizer)
    : start_(start),
      accepted_(std::move(accepted)),
      sink_(std::move(sink)),
      tokenizer_(&tokenizer),
      state_(accepted_->state),
      detokenizer_(tokenizer,
                   {.skip_special = !request().show_special, .at_start = accepted_->at_start}),
      stops_(request().stop),
      next_logit_position_(request().logits_from) {
  if (request().constraint) state_.Constrain(request().constraint);
  usage_.prompt_tokens = static_cast<int>(accepted_->prompt->size());
  usage_.order = start.id.value();
  usage_.queued_step = start.queued_step;
}

int Generation::logprobs() const {
  return accepted_->choices > request().n ? std::max(request().logprobs, 0) : request().logprobs;
}

void Generation::OnStep(const StepFacts& step) {
  if (!first_step_s_) {
    first_step_s_ = step.now;
    usage_.cached_prompt_tokens = step.taken;
  }
  if (!first_token_s_) return;
  ++usage_.decode_steps;
  usage_.decode_weight_bytes += step.weight_bytes;
  usage_.decode_kv_bytes += step.kv_bytes;
}

Result<Drawn> Generation::Draw(Sampler& sampler, std::span<const float> logits) {
  auto drawn = sampler.Draw(sampling(), state_, choice(), logprobs(), logits);
  if (!drawn) return drawn;
  state_.Accept(drawn->id, drawn->mirostat);
  drawn->ends_form = state_.constrained() && state_.trail().MustEnd();
  return drawn;
}

bool Generation::EndsWith(TokenId token) const {
  return !request().ignore_end && tokenizer_->IsEnd(token);
}

void Generation::OnDraft(int drafted, int accepted) {
  usage_.drafted_tokens += drafted;
  usage_.accepted_tokens += accepted;
  ++usage_.drafts;
  const auto right = static_cast<size_t>(accepted);
  if (usage_.accepted_at.size() < right) usage_.accepted_at.resize(right);
  for (size_t i = 0; i < right; ++i) ++usage_.accepted_at[i];
}

std::optional<FinishReason> Generation::Accept(const Drawn& drawn, double now) {
  if (!first_token_s_) first_token_s_ = now;
  usage_.decode_s = now - *first_token_s_;
  ++usage_.generated_tokens;

  TokenEvent event{.choice = start_.choice,
                   .id = drawn.id,
                   .text = {},
                   .logprob = drawn.logprob,
                   .top = drawn.top};
  const bool ends = EndsWith(drawn.id);
  if (!ends) {
    event.text = detokenizer_.Add(drawn.id);
    if (usage_.generated_tokens > sampling().params.min_tokens) event.text = stops_.Add(event.text);
  }
  sink_->OnToken(start_.id, event);
  if (ends || stops_.matched()) return FinishReason::kStop;
  // Of this token: the state may be behind further ones of the same step.
  if (drawn.ends_form) return FinishReason::kStop;
  if (!WantsToken()) return FinishReason::kLength;
  return std::nullopt;
}

void Generation::Finish(FinishReason reason, double now, std::optional<Error> error) {
  FinishEvent event{.choice = start_.choice,
                    .reason = reason,
                    .text = {},
                    .stop = {},
                    .error = std::move(error),
                    .usage = {}};
  if (!stops_.matched()) {
    event.text = stops_.Add(detokenizer_.Flush());
    event.text += stops_.Flush();
  }
  event.stop = stops_.matched();
  const double begin = first_step_s_.value_or(now);
  usage_.queue_s = begin - start_.submitted_s;
  usage_.prefill_s = first_token_s_.value_or(now) - begin;
  event.usage = usage_;
  sink_->OnFinish(start_.id, event);
}

}  // namespace nibble
