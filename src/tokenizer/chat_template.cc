#include "tokenizer/chat_template.h"

#include <algorithm>

namespace nibble {
namespace {

using Member = JinjaValue::Member;

Result<JinjaValue> ParseJson(const char* what, std::string_view text) {
  auto value = JinjaValue::FromJson(text);
  if (!value) return Within(what, value.error());
  return value;
}

// An array of objects, or an error that names `what`.
Status CheckObjects(const char* what, const JinjaValue& value) {
  if (!value.IsList()) return BadInput("{}: expected an array of objects", what);
  for (size_t i = 0; i < value.Size(); ++i) {
    if (!value.At(i).IsObject()) return BadInput("{}[{}]: expected an object", what, i);
  }
  return {};
}

// transformers' _normalize_chat_messages and _alias_reasoning_fields.
JinjaValue Normalize(const JinjaValue& message) {
  std::vector<Member> members;
  for (auto& member : message.Members()) {
    if (!member.second.IsNone()) members.push_back(std::move(member));
  }
  const auto find = [&](std::string_view key) {
    return std::ranges::find(members, key, &Member::first);
  };
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto it = find(name);
    if (it == members.end()) continue;
    const JinjaValue reasoning = it->second;
    if (find("thinking") == members.end()) members.insert(members.begin(), {"thinking", reasoning});
    const auto content = find("reasoning_content");
    if (content == members.end()) {
      members.emplace_back("reasoning_content", reasoning);
    } else {
      content->second = reasoning;
    }
    break;
  }
  // The order of {"thinking": ..., **message}: "thinking" comes first even where the message has
  // it.
  const auto thinking = find("thinking");
  if (thinking != members.end() && find("reasoning_content") != members.end()) {
    std::rotate(members.begin(), thinking, thinking + 1);
  }
  return JinjaValue::Object(std::move(members));
}

void Put(std::vector<Member>& members, const std::string& name, JinjaValue value) {
  const auto it = std::ranges::find(members, name, &Member::first);
  if (it == members.end()) {
    members.emplace_back(name, std::move(value));
  } else {
    it->second = std::move(value);
  }
}

}  // namespace

ChatTemplate::ChatTemplate(std::string source, JinjaTemplate parsed, SpecialTokens special_tokens)
    : source_(std::move(source)),
      template_(std::move(parsed)),
      special_tokens_(std::move(special_tokens)) {}

Result<ChatTemplate> ChatTemplate::Create(std::string_view source, SpecialTokens special_tokens) {
  auto parsed = JinjaTemplate::Parse(source);
  if (!parsed) return Within("chat template", parsed.error());
  return ChatTemplate(std::string(source), std::move(*parsed), std::move(special_tokens));
}

Result<ChatTemplate> ChatTemplate::Create(std::string_view source, std::string bos_token,
                                          std::string eos_token) {
  SpecialTokens tokens;
  if (!bos_token.empty()) tokens.emplace_back("bos_token", std::move(bos_token));
  if (!eos_token.empty()) tokens.emplace_back("eos_token", std::move(eos_token));
  return Create(source, std::move(tokens));
}

Result<std::string> ChatTemplate::Apply(std::string_view messages_json,
                                        const ChatOptions& options) const {
  NIBBLE_TRY(const JinjaValue input, ParseJson("messages", messages_json));
  if (!input.IsObject()) return Render(input, JinjaValue::Object({}), options);
  const auto messages = input.Get("messages");
  if (!messages) return BadInput("messages: the object has no 'messages'");
  return Render(*messages, input, options);
}

Result<std::string> ChatTemplate::Apply(const std::vector<ChatMessage>& messages,
                                        const ChatOptions& options) const {
  std::vector<JinjaValue> list;
  for (const auto& [role, content] : messages) {
    list.push_back(JinjaValue::Object(
        {{"role", JinjaValue::String(role)}, {"content", JinjaValue::String(content)}}));
  }
  return Render(JinjaValue::List(std::move(list)), JinjaValue::Object({}), options);
}

Result<std::string> ChatTemplate::Render(const JinjaValue& messages, const JinjaValue& given,
                                         const ChatOptions& options) const {
  NIBBLE_RETURN_IF_ERROR(CheckObjects("messages", messages));
  std::vector<JinjaValue> normalized;
  for (size_t i = 0; i < messages.Size(); ++i) normalized.push_back(Normalize(messages.At(i)));

  std::vector<Member> context;
  for (const auto& [name, text] : special_tokens_) Put(context, name, JinjaValue::String(text));
  Put(context, "tools", JinjaValue());
  Put(context, "documents", JinjaValue());
  Put(context, "add_generation_prompt", JinjaValue::Bool(options.add_generation_prompt));
  if (!options.tools_json.empty()) {
    NIBBLE_TRY(JinjaValue tools, ParseJson("tools", options.tools_json));
    Put(context, "tools", std::move(tools));
  }
  if (!options.documents_json.empty()) {
    NIBBLE_TRY(JinjaValue documents, ParseJson("documents", options.documents_json));
    Put(context, "documents", std::move(documents));
  }
  if (!options.extra_json.empty()) {
    NIBBLE_TRY(const JinjaValue extra, ParseJson("template variables", options.extra_json));
    if (!extra.IsObject()) return BadInput("template variables: expected an object");
    for (auto& [name, value] : extra.Members()) Put(context, name, std::move(value));
  }
  for (auto& [name, value] : given.Members()) Put(context, name, std::move(value));
  Put(context, "messages", JinjaValue::List(std::move(normalized)));

  for (const char* name : {"tools", "documents"}) {
    const auto& value = std::ranges::find(context, name, &Member::first)->second;
    if (!value.IsNone()) NIBBLE_RETURN_IF_ERROR(CheckObjects(name, value));
  }
  auto text = template_.Render(JinjaValue::Object(std::move(context)),
                               {.limits = options.limits, .now = options.now});
  if (!text) return Within("chat template", text.error());
  return text;
}

}  // namespace nibble
