#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "tensor/matrix.h"

namespace nibble::grammar {
class Constraint;
}

namespace nibble {

// The empty initialisers in this file let callers name only some members without a warning.
// NOLINTBEGIN(readability-redundant-member-init)

struct LogitBias {
  TokenId id;
  float bias = 0;  // added to the logit; -infinity forbids the token
};

// How a token is drawn from a row of logits. The order of the samplers is llama.cpp's: logit bias,
// penalties, DRY, forbidden tokens, top-n-sigma, top-k, typical, top-p, min-p, XTC, temperature,
// then one Gumbel-max draw (docs/sampling.md). The defaults change nothing and take the most
// probable token.
struct SamplingParams {
  float temperature = 0;  // 0: the most probable token, ties to the lower id
  int top_k = 0;          // keep the k most probable; 0: all
  float top_p = 1;        // keep the smallest set of at least this probability; 1: all
  float min_p = 0;        // keep probabilities >= min_p · largest; 0: all
  float typical_p = 1;    // locally typical sampling (Meister et al. 2022); 1: off
  // Keep logits within so many standard deviations of the largest (Tang et al. 2024); <= 0: all.
  float top_n_sigma = -1;
  // XTC: with this probability, all tokens of at least the threshold but the least probable of
  // them are left out.
  float xtc_probability = 0;
  float xtc_threshold = 0.1F;
  // Dynamic temperature: from temperature - range, at no entropy, to temperature + range, at the
  // largest that so many tokens can have, by that share raised to the exponent; range 0: off.
  float dynatemp_range = 0;
  float dynatemp_exponent = 1;
  // 2: mirostat 2 (Basu et al. 2021) in place of all filters above, 0: off. tau: surprise in bits
  // that it aims at; eta: how fast.
  int mirostat = 0;
  float mirostat_tau = 5;
  float mirostat_eta = 0.1F;

  // Over the last `penalty_last_n` tokens of prompt and answer (-1: all, 0: none).
  float repetition_penalty = 1;  // > 0; divides positive, multiplies negative logits
  float presence_penalty = 0;    // subtracted once from every token that occurred
  float frequency_penalty = 0;   // subtracted per occurrence
  int penalty_last_n = 64;

  // DRY: a token that would continue a repetition of n >= allowed_length tokens loses
  // multiplier · base^(n - allowed_length); 0: off. Repetitions are looked for in the last
  // dry_penalty_last_n tokens of prompt and answer (-1: all) and do not reach over a breaker.
  float dry_multiplier = 0;
  float dry_base = 1.75F;
  int dry_allowed_length = 2;
  int dry_penalty_last_n = -1;
  std::vector<std::string> dry_sequence_breakers = {"\n", ":", "\"", "*"};

  // No end token is drawn, and no stop string is looked for, before the answer has so many tokens.
  int min_tokens = 0;
  // The answer never has the tokens of these texts in a row, with or without a space before.
  std::vector<std::string> bad_words = {};
  std::vector<LogitBias> logit_bias = {};
  uint64_t seed = 0;  // same seed, choice and prompt: same answer
};

// Receives the logits of a request in blocks of rows, in order, every position once. Called on the
// engine's thread, which it may block.
class PositionLogitsSink {
 public:
  virtual ~PositionLogitsSink() = default;
  // logits [n][vocabulary] behind the tokens at positions first … first + n - 1. Valid during the
  // call only; the sink may change them in place.
  virtual void Rows(Position first, MatrixView<float> logits) = 0;
};

// One question to the engine.
struct Request {
  std::vector<TokenId> prompt = {};  // at least one id
  int max_tokens = -1;               // 0: compute the prompt only; -1: until the context is full
  SamplingParams sampling = {};
  std::vector<std::string> stop = {};  // the answer ends before the first of these texts
  bool ignore_end = false;             // go on behind end-of-text tokens
  bool show_special = false;           // texts of control tokens are part of the answer
  int priority = 0;                    // >= 0; lower values are admitted first
  // Answers to the same prompt, told apart by `choice`: at most 128, and at most 4,194,304 tokens
  // in all their prompts together. The prompt is computed once.
  int n = 1;
  // Answers that are generated; the n with the highest mean log-probability of their tokens are
  // given, best first, all at the end. 0: n.
  int best_of = 0;
  // Log-probabilities per generated token: -1 none, 0 the token's own, k > 0 the k most probable
  // as well. Of the model's logits, before any sampler.
  int logprobs = -1;

  // What the answer must be; none: anything. It ends where nothing more may follow. Made for this
  // engine's vocabulary (Engine::vocabulary). May be shared by requests; only the engine's thread
  // asks it.
  std::shared_ptr<grammar::Constraint> constraint = nullptr;

  // Gets the logits of every position >= logits_from of prompt and answer (n must be 1). Must live
  // until OnFinish.
  PositionLogitsSink* logits = nullptr;
  int logits_from = 0;
};

// NOLINTEND(readability-redundant-member-init)

enum class FinishReason : uint8_t {
  kStop,       // an end token or a stop string
  kLength,     // max_tokens, or the context is full
  kCancelled,  // Cancel, or the engine was destroyed
  kError,      // FinishEvent::error says what
};
std::string_view FinishReasonName(FinishReason reason);  // "stop", "length", "cancelled", "error"

struct TokenLogprob {
  TokenId id;
  float logprob = 0;  // natural logarithm
};

// One generated token. Its text may come with a later event: half characters and beginnings of
// stop strings are held back. An end token has an event of its own with empty text.
struct TokenEvent {
  int choice = 0;
  TokenId id;
  std::string text;               // complete UTF-8, may be empty
  float logprob = 0;              // when Request::logprobs >= 0
  std::vector<TokenLogprob> top;  // most probable first, when Request::logprobs > 0
};

struct Usage {
  int prompt_tokens = 0;
  int cached_prompt_tokens = 0;  // of those, taken from the prefix cache or from another choice
  int generated_tokens = 0;      // the end token included
  int preemptions = 0;
  double queue_s = 0;    // from Submit to the first step that computed any of it
  double prefill_s = 0;  // from there to the first generated token (or the end of the prompt)
  double decode_s = 0;   // from there to the last token
  // Bytes of weights and of keys and values that the steps after the first token read: all of
  // each step's weights, as if the request had been alone.
  double decode_weight_bytes = 0;
  double decode_kv_bytes = 0;
  int decode_steps = 0;
  int drafted_tokens = 0;             // guessed and verified by steps; of these
  int accepted_tokens = 0;            // tokens of the answer that had been guessed
  int drafts = 0;                     // steps that had guesses
  std::vector<int> accepted_at = {};  // of these, in how many the first, second … was right
  // For who follows the engine step by step: its place among all requests, steps before it was
  // queued, and steps before it had ended, its own last one included.
  uint64_t order = 0;
  int64_t queued_step = 0;
  int64_t ended_step = 0;
};

struct FinishEvent {
  int choice = 0;
  FinishReason reason = FinishReason::kStop;
  std::string text;                 // what was still held back
  std::optional<std::string> stop;  // the stop string that ended the answer
  std::optional<Error> error;       // with kError
  Usage usage;
};

// Receives the events of a request: for each choice tokens in order, then one OnFinish. Called on
// the engine's thread: it must return at once (put the event into a queue), and must not call the
// engine except Cancel, which is always safe. EventStream (engine/event_stream.h) is the ready-made
// queue.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void OnToken(RequestId id, const TokenEvent& event) = 0;
  virtual void OnFinish(RequestId id, const FinishEvent& event) = 0;
};

}  // namespace nibble
