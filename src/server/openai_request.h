#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "container/json.h"
#include "engine/check_request.h"
#include "engine/request.h"
#include "grammar/tool_syntax.h"
#include "server/api_error.h"
#include "server/reasoning.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace nibble::server {

enum class Endpoint : uint8_t { kChatCompletions, kCompletions };

// What a body of /v1/chat/completions or /v1/completions asks for.
struct OpenAiRequest {
  Endpoint endpoint = Endpoint::kChatCompletions;
  Request request;               // for the first prompt
  std::optional<uint64_t> seed;  // as given; Request holds none then
  std::string model;             // as given; empty: none

  // Of live requests.
  std::vector<std::vector<TokenId>> more_prompts;  // behind the first, in order
  bool stream = false;
  bool stream_usage = false;  // a last chunk with the usage
  // Chat: what the template puts around reasoning, which is then a member of its own.
  std::optional<ReasoningMarks> reasoning;
  std::optional<grammar::ToolSyntax> tools;  // chat: how calls are written, where there are tools
  bool drop_turns = false;                   // chat: the oldest turns go when they do not fit
  int dropped_messages = 0;
  bool asks_tokens = false;          // max_tokens is the body's own, not what is usual
  bool echo = false;                 // completions: the prompt is part of the text
  std::vector<std::string> ignored;  // members that nobody knows, for a warning
  std::string prompt_text;           // as rendered, for --log-prompts; empty where ids were given
};

// Bounds beside the engine's own.
struct OpenAiLimits {
  int max_context = 0;             // tokens of prompt and answer; 0: the engine sees to it
  int max_tokens = 0;              // tokens of an answer; 0: up to the context
  int max_choices = kMostChoices;  // n, and n times the number of prompts
  int max_queue = 0;               // answers of one prompt, which wait together; 0: the engine's
  int max_logprobs = kMostLogprobs;
  size_t max_stops = kMostStops;
  size_t max_logit_bias = 65536;  // entries
};

class Constraints;

struct OpenAiContext {
  const Tokenizer* tokenizer = nullptr;
  const ChatTemplate* chat = nullptr;  // none: chat completions are refused
  SamplingParams sampling = {};        // for members that a body leaves out
  std::optional<int> max_tokens = {};  // the same
  OpenAiLimits limits = {};
  Constraints* constraints = nullptr;  // none: answers cannot be constrained
  // Where given, nothing is compiled, which may take seconds: it becomes true, and the request an
  // error, where the constraint is not at hand.
  bool* constraint_is_missing = nullptr;
  // A server's: streams, echoes, takes several prompts, and ignores members that nobody knows, with
  // a warning. Else these are refused.
  bool live = false;
};

// Errors name the member, what was expected and what was found. Members that would change the
// answer and are not supported are refused, not ignored.
ApiResult<OpenAiRequest> ReadOpenAiRequest(Endpoint endpoint, JsonValue body,
                                           const OpenAiContext& context);

// The text of a conversation up to where the answer begins. body: {messages, chat_template_kwargs,
// add_generation_prompt}.
Result<std::string> RenderMessages(JsonValue body, const ChatTemplate* chat);

}  // namespace nibble::server
