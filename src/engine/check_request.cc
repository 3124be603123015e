#include "engine/check_request.h"

#include <algorithm>

#include "engine/sampler.h"

namespace nibble {
namespace {

Status CheckPrompt(const Request& request, int vocabulary, int max_context) {
  const std::vector<TokenId>& prompt = request.prompt;
  if (prompt.empty()) return BadInput("the prompt is empty: at least one token is needed");
  if (prompt.size() > static_cast<size_t>(max_context)) {
    return BadInput("the prompt has {} tokens and the context holds {}", prompt.size(),
                    max_context);
  }
  if (prompt.size() == static_cast<size_t>(max_context) && request.max_tokens != 0) {
    return BadInput("the prompt has {} tokens and the context holds {}: no room for an answer",
                    prompt.size(), max_context);
  }
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i].value() < 0 || prompt[i].value() >= vocabulary) {
      return BadInput("prompt token {} is {}, expected an id from 0 to {}", i, prompt[i].value(),
                      vocabulary - 1);
    }
  }
  return {};
}

Status CheckStops(const std::vector<std::string>& stops) {
  if (stops.size() > kMostStops) {
    return BadInput("{} stop strings, expected at most {}", stops.size(), kMostStops);
  }
  for (const std::string& stop : stops) {
    if (stop.empty()) return BadInput("a stop string is empty");
    if (stop.size() > kMostStopBytes) {
      return BadInput("a stop string has {} bytes, expected at most {}", stop.size(),
                      kMostStopBytes);
    }
  }
  return {};
}

}  // namespace

Status CheckParameters(const Request& request, int vocabulary) {
  if (request.max_tokens < -1) {
    return BadInput("max_tokens is {}, expected at least -1", request.max_tokens);
  }
  NIBBLE_RETURN_IF_ERROR(CheckSampling(request.sampling, vocabulary));
  NIBBLE_RETURN_IF_ERROR(CheckStops(request.stop));
  if (request.priority < 0) {
    return BadInput("priority is {}, expected at least 0", request.priority);
  }
  if (request.n < 1 || request.n > kMostChoices) {
    return BadInput("n is {}, expected a number from 1 to {}", request.n, kMostChoices);
  }
  if (request.best_of != 0 && (request.best_of < request.n || request.best_of > kMostChoices)) {
    return BadInput("best_of is {}, expected 0 or a number from n, {}, to {}", request.best_of,
                    request.n, kMostChoices);
  }
  if (request.logprobs < -1 || request.logprobs > kMostLogprobs) {
    return BadInput("logprobs is {}, expected a number from -1 to {}", request.logprobs,
                    kMostLogprobs);
  }
  if (request.logits != nullptr && std::max(request.n, request.best_of) != 1) {
    return BadInput("logits of {} choices at once are not given out, expected n = 1", request.n);
  }
  if (request.constraint != nullptr && request.ignore_end) {
    return BadInput("ignore_eos and a constraint at once: nothing may follow the answer's end");
  }
  if (request.logits_from < 0) {
    return BadInput("logits_from is {}, expected at least 0", request.logits_from);
  }
  return {};
}

Status CheckRequest(const Request& request, int vocabulary, int max_context) {
  NIBBLE_RETURN_IF_ERROR(CheckParameters(request, vocabulary));
  NIBBLE_RETURN_IF_ERROR(CheckPrompt(request, vocabulary, max_context));
  const int choices = std::max(request.n, request.best_of);
  const int64_t prompts = int64_t{choices} * std::ssize(request.prompt);
  if (choices > 1 && prompts > kMostPromptTokens) {
    return BadInput("n is {}: so many prompts of {} tokens have {}, expected at most {}", choices,
                    request.prompt.size(), prompts, kMostPromptTokens);
  }
  return {};
}

}  // namespace nibble
