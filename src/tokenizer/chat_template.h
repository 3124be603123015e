#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "tokenizer/jinja.h"

namespace nibble {

// One turn of a conversation in its simplest form.
struct ChatMessage {
  std::string role;
  std::string content;
};

// What a chat is rendered with, as in transformers' apply_chat_template.
struct ChatOptions {
  bool add_generation_prompt = true;
  std::string tools_json;      // array of JSON schemas; empty: none
  std::string documents_json;  // array of {title, text}; empty: none
  // Object of further variables (enable_thinking, reasoning_effort, ...); empty: none. They win
  // over the special tokens.
  std::string extra_json;
  std::optional<JinjaTime> now;  // none: the machine's clock
  JinjaLimits limits;
};

// The special tokens that templates can name, as text ("bos_token" -> "<s>"). transformers gives
// only those that the tokenizer has.
using SpecialTokens = std::vector<std::pair<std::string, std::string>>;

// A model's chat template. Immutable; Apply may be called from several threads at once.
class ChatTemplate {
 public:
  // Errors: "chat template: line 3: ...".
  static Result<ChatTemplate> Create(std::string_view source, SpecialTokens special_tokens);
  static Result<ChatTemplate> Create(std::string_view source, std::string bos_token,
                                     std::string eos_token);

  // `messages_json`: an array of objects {role, content, ...}, or an object with `messages` and
  // optionally `tools`, `documents`, `add_generation_prompt` and further variables, which win over
  // `options`. As transformers does, members that are null are dropped, and reasoning is given
  // under each of its names (reasoning_content, thinking).
  Result<std::string> Apply(std::string_view messages_json, const ChatOptions& options = {}) const;
  Result<std::string> Apply(const std::vector<ChatMessage>& messages,
                            const ChatOptions& options = {}) const;

  const std::string& source() const { return source_; }

 private:
  ChatTemplate(std::string source, JinjaTemplate parsed, SpecialTokens special_tokens);
  Result<std::string> Render(const JinjaValue& messages, const JinjaValue& given,
                             const ChatOptions& options) const;

  std::string source_;
  JinjaTemplate template_;
  SpecialTokens special_tokens_;
};

}  // namespace nibble
