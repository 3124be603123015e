#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "container/json.h"
#include "server/openai_request.h"

namespace nibble::server {

// Members of a body, one kind after the other. Errors begin with the member's name in quotes.

// An integer member, in the range of int; nothing when it is absent or null.
Result<std::optional<int>> FindInt(JsonValue body, const char* key);

// Refuses members that would change the answer and are not supported, gathers the names of those
// that nobody knows into `ignored`, or refuses them where the context is not live.
Status CheckMembers(Endpoint endpoint, JsonValue body, const OpenAiContext& context,
                    std::vector<std::string>& ignored);

Status ReadSampling(JsonValue body, const OpenAiContext& context, SamplingParams& sampling);
Status ReadStops(JsonValue body, const OpenAiLimits& limits, Request& request);
Status ReadLogprobs(Endpoint endpoint, JsonValue body, const OpenAiLimits& limits,
                    Request& request);
// n, best_of, priority, max_tokens, max_completion_tokens, ignore_eos.
Status ReadCounts(Endpoint endpoint, JsonValue body, const OpenAiContext& context,
                  Request& request);
// truncation, reasoning_format.
Status ReadChat(JsonValue body, const OpenAiContext& context, OpenAiRequest& out);
// stream, stream_options, echo.
Status ReadDelivery(Endpoint endpoint, JsonValue body, OpenAiRequest& out);

}  // namespace nibble::server
