#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "container/json.h"
#include "server/json_text.h"
#include "server/openai_request.h"

namespace nibble::server {

// Members of a body that say what the answer must be, of which at most one is taken:
// response_format (text, json_object, json_schema), vLLM's guided_json, guided_regex,
// guided_choice, guided_grammar and structured_outputs, llama.cpp's grammar and json_schema.
bool IsConstraintMember(std::string_view key);

// tools and tool_choice, as the template gets them and as the answer is held to them.
struct WantedTools {
  std::string for_template;  // JSON; empty: none
  std::optional<grammar::ToolCalls> calls;
};
Result<WantedTools> ReadTools(JsonValue body, const OpenAiContext& context);

// The constraint of a body, if it has one. Errors begin with the member's name in quotes.
Result<std::shared_ptr<grammar::Constraint>> ReadConstraint(
    JsonValue body, const OpenAiContext& context, const WantedTools& tools,
    const std::optional<ReasoningMarks>& reasoning);

}  // namespace nibble::server
