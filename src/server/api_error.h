#pragma once

#include <expected>
#include <optional>
#include <string>

#include "base/result.h"
#include "server/json_text.h"

namespace nibble::server {

// An answer that is an error, in OpenAI's terms.
struct ApiError {
  int status = 400;
  std::string message;
  std::string param = {};                 // the member of the body that is wrong; empty: none
  std::string code = {};                  // "context_length_exceeded", "model_not_found", …
  std::optional<int> retry_after_s = {};  // with 429 and 503
};

template <class T>
using ApiResult = std::expected<T, ApiError>;

// Of the engine's and the readers' errors: 400 for what the caller did, with the member that the
// message begins with; 503 for no room; 500.
ApiError ApiErrorOf(const Error& error);

// The body: {"error": {message, type, param, code}}.
Json ErrorBody(const ApiError& error);

}  // namespace nibble::server
