#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "container/json.h"
#include "engine/request.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace nibble::cli {

enum class Endpoint : uint8_t { kChatCompletions, kCompletions };

// What a body of /v1/chat/completions or /v1/completions asks for.
struct OpenAiRequest {
  Endpoint endpoint = Endpoint::kChatCompletions;
  Request request;
  std::optional<uint64_t> seed;  // as given; Request holds none then
};

struct OpenAiContext {
  const Tokenizer* tokenizer = nullptr;
  const ChatTemplate* chat = nullptr;  // none: chat completions are refused
  SamplingParams sampling;             // for members that a body leaves out
  std::optional<int> max_tokens;       // the same
};

// kBadInput names the member, what was expected and what was found. Members that would change the
// answer and are not supported are refused, not ignored.
Result<OpenAiRequest> ReadOpenAiRequest(Endpoint endpoint, JsonValue body,
                                        const OpenAiContext& context);

}  // namespace nibble::cli
