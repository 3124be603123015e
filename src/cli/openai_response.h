#pragma once

#include <string>
#include <vector>

#include "cli/json_output.h"
#include "cli/openai_request.h"
#include "engine/event_stream.h"

namespace nibble::cli {

// What a response is named by. `created` is 0: the same request gives the same bytes.
struct ResponseName {
  std::string id;     // of the completion, behind "chatcmpl-" or "cmpl-"
  std::string model;  // as the caller knows it
};

// The body of a response to /v1/chat/completions or /v1/completions, from all choices in order.
Json OpenAiResponse(const OpenAiRequest& request, const ResponseName& name,
                    const Tokenizer& tokenizer, const std::vector<Answer>& answers);

// The body of an error, and its HTTP status: 400 for what the caller did, 503 for no room, 500.
Json OpenAiError(const Error& error);
int HttpStatus(const Error& error);

}  // namespace nibble::cli
