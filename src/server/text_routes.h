#pragma once

#include <string>
#include <string_view>

#include "container/json.h"
#include "server/api_error.h"
#include "server/openai_request.h"

namespace nibble::server {

// A body as JSON, bounded in depth and values. Errors: 400.
ApiResult<JsonDocument> ParseBody(std::string_view body);

// What /tokenize, /detokenize and /apply-template answer, in llama.cpp's terms ("content") and
// vLLM's ("prompt"). Errors: 400 with the member's name.
ApiResult<Json> AnswerText(std::string_view path, std::string_view body,
                           const OpenAiContext& context);

}  // namespace nibble::server
