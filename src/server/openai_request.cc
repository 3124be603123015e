#include "server/openai_request.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

#include "server/openai_constraint.h"
#include "server/openai_fields.h"
#include "server/tool_calls.h"

namespace nibble::server {
namespace {

// A message's content as text: a string, or parts of type text.
Result<std::string> ContentText(JsonValue content) {
  if (content.is_string()) return std::string(*content.AsString());
  if (content.is_null()) return std::string();
  const auto parts = content.AsArray();
  if (!parts) {
    return BadInput("expected a string or an array of parts, found {}",
                    JsonKindName(content.kind()));
  }
  std::string text;
  for (const JsonValue part : *parts) {
    if (!part.is_object()) {
      return BadInput("expected an array of parts, found {}", JsonKindName(part.kind()));
    }
    NIBBLE_TRY(const std::string_view type, part.GetString("type"));
    if (type == "image_url" || type == "input_image" || type == "image") {
      return BadInput("parts of type {} are not supported: this model reads text, no images",
                      QuoteJson(type));
    }
    if (type != "text") return BadInput("parts of type {} are not supported", QuoteJson(type));
    NIBBLE_TRY(const std::string_view piece, part.GetString("text"));
    text += piece;
  }
  return text;
}

constexpr std::array<std::string_view, 6> kRoles = {"system",    "developer", "user",
                                                    "assistant", "tool",      "function"};

Status CheckRole(JsonValue message) {
  NIBBLE_TRY(const std::string_view role, message.GetString("role"));
  if (std::ranges::find(kRoles, role) != kRoles.end()) return {};
  return BadInput("'role': expected one of {}, found {}", fmt::join(kRoles, ", "), QuoteJson(role));
}

// Members beside the content that templates write as text.
Status CheckTexts(JsonValue message) {
  for (const char* key : {"name", "tool_call_id", "reasoning_content"}) {
    const auto value = message.Find(key);
    if (!value || value->is_null() || value->is_string()) continue;
    return BadInput("'{}': expected a string, found {}", key, JsonKindName(value->kind()));
  }
  return {};
}

Status CheckCall(JsonValue call) {
  if (!call.is_object()) return BadInput("expected an object, found {}", JsonKindName(call.kind()));
  NIBBLE_TRY(const JsonValue function, call.Get("function"));
  if (!function.is_object()) {
    return BadInput("'function': expected an object, found {}", JsonKindName(function.kind()));
  }
  NIBBLE_RETURN_IF_ERROR(function.GetString("name"));
  NIBBLE_RETURN_IF_ERROR(call.GetStringOr("id", ""));
  const auto arguments = function.Find("arguments");
  if (!arguments || arguments->is_null() || arguments->is_object()) return {};
  if (!arguments->is_string()) {
    return BadInput("'arguments': expected JSON as a string, found {}",
                    JsonKindName(arguments->kind()));
  }
  const std::string_view text = *arguments->AsString();
  if (text.empty()) return {};
  const auto parsed = JsonDocument::Parse(std::string(text));
  if (!parsed) return Within("'arguments': no JSON", parsed.error());
  return {};
}

Status CheckCalls(JsonValue message) {
  const auto calls = message.Find("tool_calls");
  if (!calls || calls->is_null()) return {};
  const auto list = calls->AsArray();
  if (!list) return Within("'tool_calls'", list.error());
  int number = 0;
  for (const JsonValue call : *list) {
    const Status checked = CheckCall(call);
    if (!checked) return Within(fmt::format("'tool_calls[{}]'", number), checked.error());
    ++number;
  }
  return {};
}

// Whether the template writes a call's arguments from an object. A few only take the text that
// clients send, and fail or write an object as Python would; which, a call made up here shows.
bool TakesObjects(const ChatTemplate& chat) {
  static const std::string kCall = R"([
      {"role": "user", "content": "x"},
      {"role": "assistant", "content": "", "tool_calls": [{"id": "123456789", "type": "function",
       "function": {"name": "x", "arguments": {"needle": "x"}}}]},
      {"role": "tool", "tool_call_id": "123456789", "name": "x", "content": "x"}])";
  const auto text = chat.Apply(kCall);
  return text && text->find("{'needle'") == std::string::npos;
}

// Arguments as JSON values; clients give them as the text they got.
void ParseArguments(Json& calls) {
  for (Json& call : calls) {
    Json& function = call["function"];
    if (!function.contains("arguments") || !function["arguments"].is_string()) continue;
    const std::string& text = function["arguments"].get_ref<const std::string&>();
    if (text.size() > (size_t{1} << 20)) continue;
    Json value = text.empty() ? Json::object() : Json::parse(text, nullptr, false);
    if (value.is_object()) function["arguments"] = std::move(value);
  }
}

// As text, for a template that takes no objects; clients may give both.
void WriteArguments(Json& calls) {
  for (Json& call : calls) {
    Json& function = call["function"];
    const auto arguments = function.find("arguments");
    if (arguments != function.end() && arguments->is_object()) *arguments = DumpJson(*arguments);
  }
}

// The messages with contents as text, and calls as the template takes them.
Result<Json> PlainMessages(JsonValue body, const ChatTemplate& chat) {
  NIBBLE_TRY(const JsonValue messages, body.Get("messages"));
  const auto list = messages.AsArray();
  if (!list || list->empty()) return BadInput("'messages': expected a non-empty array");
  Json out = Json::array();
  std::optional<bool> objects;  // asked when there are calls
  int number = 0;
  for (const JsonValue message : *list) {
    const std::string place = fmt::format("'messages[{}]'", number++);
    if (!message.is_object()) {
      return BadInput("{}: expected an object, found {}", place, JsonKindName(message.kind()));
    }
    for (const auto check : {CheckRole, CheckTexts, CheckCalls}) {
      if (const Status checked = check(message); !checked) return Within(place, checked.error());
    }
    Json copy = Json::parse(message.ToString(), nullptr, false);
    const auto content = message.Find("content");
    const bool calls = copy.contains("tool_calls") && !copy["tool_calls"].empty();
    if (!content && !calls) return BadInput("{}: 'content' is missing", place);
    const auto text = content ? ContentText(*content) : std::string();
    if (!text) return Within(place + ": 'content'", text.error());
    copy["content"] = *text;
    if (calls) {
      if (!objects) objects = TakesObjects(chat);
      *objects ? ParseArguments(copy["tool_calls"]) : WriteArguments(copy["tool_calls"]);
    }
    out.push_back(std::move(copy));
  }
  return out;
}

// tools: JSON; empty: none.
Result<std::string> Render(JsonValue body, const Json& messages, const ChatTemplate& chat,
                           const std::string& tools = {}) {
  ChatOptions options;
  if (!tools.empty() && SpeaksOfTools(chat.source())) options.tools_json = tools;
  if (const auto given = body.Find("chat_template_kwargs"); given && !given->is_null()) {
    if (!given->is_object()) {
      return BadInput("'chat_template_kwargs': expected an object, found {}",
                      JsonKindName(given->kind()));
    }
    options.extra_json = given->ToString();
  }
  NIBBLE_TRY(options.add_generation_prompt, body.GetBoolOr("add_generation_prompt", true));
  auto text = chat.Apply(DumpJson(messages), options);
  if (!text) return Within("'messages'", text.error());
  return text;
}

struct Prompts {
  std::vector<std::vector<TokenId>> ids;  // at least one
  std::string text;                       // of all that were text
};

Status CheckChat(const ChatTemplate* chat) {
  if (chat != nullptr) return {};
  return BadInput("the model has no chat template; use /v1/completions or --chat-template");
}

// Tokens of a prompt that are counted: more than fit, so that a message can say by how much a
// prompt is too long, but not those of megabytes.
size_t MostCounted(const OpenAiContext& context) {
  if (context.limits.max_context <= 0) return SIZE_MAX;
  const auto fits = static_cast<size_t>(context.limits.max_context);
  return fits + std::max<size_t>(256, fits / 4);
}

Result<Prompts> Encoded(std::string text, const OpenAiContext& context) {
  NIBBLE_TRY(auto ids, context.tokenizer->Encode(text, {.add_special = false,
                                                        .parse_special = true,
                                                        .most_tokens = MostCounted(context)}));
  Prompts out;
  out.text = std::move(text);
  out.ids.push_back(std::move(ids));
  return out;
}

// Where turns begin that may be dropped: at messages of users, behind those of the system that
// stand first, but not at the last one.
std::vector<size_t> TurnsOf(const Json& messages) {
  std::vector<size_t> turns;
  size_t first = 0;
  const auto is = [&](size_t i, const char* role) {
    const auto found = messages[i].find("role");
    return found != messages[i].end() && found->is_string() && *found == role;
  };
  while (first < messages.size() && (is(first, "system") || is(first, "developer"))) {
    ++first;
  }
  for (size_t i = first; i < messages.size(); ++i) {
    if (i == first || is(i, "user")) turns.push_back(i);
  }
  return turns;
}

Json WithoutTurns(const Json& messages, size_t first, size_t end) {
  Json out = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    if (i < first || i >= end) out.push_back(messages[i]);
  }
  return out;
}

// Drops as few of the oldest turns as let prompt and answer fit. An answer whose length is not
// given gets a quarter of the context.
Result<Prompts> DropTurns(JsonValue body, const Json& messages, const OpenAiContext& context,
                          const std::string& tools, OpenAiRequest& out) {
  const int context_tokens = context.limits.max_context;
  const bool given = out.asks_tokens && out.request.max_tokens >= 0;
  const int answer = given ? out.request.max_tokens : context_tokens / 4;
  const std::vector<size_t> turns = TurnsOf(messages);
  const auto without = [&](size_t dropped) -> Result<Prompts> {
    const size_t end = dropped == 0 ? 0 : turns[dropped];
    const size_t first = dropped == 0 ? 0 : turns[0];
    out.dropped_messages = static_cast<int>(end - first);
    NIBBLE_TRY(std::string text,
               Render(body, WithoutTurns(messages, first, end), *context.chat, tools));
    return Encoded(std::move(text), context);
  };
  const auto fits = [&](const Prompts& prompts) {
    return std::ssize(prompts.ids.front()) + answer <= context_tokens;
  };
  NIBBLE_TRY(Prompts all, without(0));
  if (fits(all) || turns.size() < 2) return all;
  // A template is rendered once for each halving, whatever the number of turns.
  size_t low = 0, high = turns.size() - 1;  // low does not fit
  while (high - low > 1) {
    const size_t middle = low + (high - low) / 2;
    NIBBLE_TRY(const Prompts tried, without(middle));
    (fits(tried) ? high : low) = middle;
  }
  return without(high);
}

// A template that does not speak of tools tells of them as the system does.
void TellOfTools(const WantedTools& tools, Json& messages) {
  const std::string told = ToolsPrompt(tools.for_template, tools.calls->syntax);
  Json& first = messages.front();
  if (first.contains("role") && first["role"] == "system" && first["content"].is_string()) {
    first["content"] = first["content"].get<std::string>() + "\n\n" + told;
  } else {
    messages.insert(messages.begin(), Json{{"role", "system"}, {"content", told}});
  }
}

Result<Prompts> ReadMessages(JsonValue body, const OpenAiContext& context, OpenAiRequest& out) {
  NIBBLE_RETURN_IF_ERROR(CheckChat(context.chat));
  NIBBLE_TRY(Json messages, PlainMessages(body, *context.chat));
  NIBBLE_TRY(const WantedTools tools, ReadTools(body, context));
  if (tools.calls && !SpeaksOfTools(context.chat->source())) {
    TellOfTools(tools, messages);
  }
  Result<Prompts> prompts;
  if (out.drop_turns) {
    prompts = DropTurns(body, messages, context, tools.for_template, out);
  } else {
    NIBBLE_TRY(std::string text, Render(body, messages, *context.chat, tools.for_template));
    prompts = Encoded(std::move(text), context);
  }
  if (!prompts) return prompts;
  const auto reasoning = FindReasoning(context.chat->source(), prompts->text);
  if (out.reasoning) out.reasoning = reasoning;
  NIBBLE_TRY(out.request.constraint, ReadConstraint(body, context, tools, reasoning));
  if (tools.calls) {
    out.tools = tools.calls->syntax;
    // Marks that are tokens are text to whoever reads calls.
    out.request.show_special = !out.tools->tokens.empty();
  }
  return prompts;
}

Result<std::vector<TokenId>> ReadIds(const JsonArray& list) {
  std::vector<TokenId> ids;
  ids.reserve(list.size());
  for (const JsonValue one : list) {
    const auto id = one.AsInt();
    if (!id) {
      return BadInput("'prompt': expected token ids, found {} among them",
                      JsonKindName(one.kind()));
    }
    if (*id < INT32_MIN || *id > INT32_MAX) {
      return BadInput("'prompt': {} is no token id", *id);
    }
    ids.emplace_back(static_cast<int>(*id));
  }
  return ids;
}

// A string, an array of ids, or an array of one kind of these.
Result<Prompts> ReadPrompts(JsonValue body, const OpenAiContext& context) {
  NIBBLE_TRY(const JsonValue prompt, body.Get("prompt"));
  Prompts out;
  const auto add = [&](JsonValue text) -> Status {
    const std::string_view view = *text.AsString();
    NIBBLE_TRY(auto ids, context.tokenizer->Encode(view, {.most_tokens = MostCounted(context)}));
    out.ids.push_back(std::move(ids));
    out.text += view;
    return {};
  };
  if (prompt.is_string()) {
    NIBBLE_RETURN_IF_ERROR(add(prompt));
    return out;
  }
  const auto list = prompt.AsArray();
  if (!list || list->empty()) {
    return BadInput("'prompt': expected a string or an array of token ids");
  }
  const JsonKind kind = (*list->begin()).kind();
  if (kind != JsonKind::kString && kind != JsonKind::kArray) {
    NIBBLE_TRY(auto ids, ReadIds(*list));
    out.ids.push_back(std::move(ids));
    return out;
  }
  if (list->size() > 1 && !context.live) {
    return BadInput("'prompt': several prompts need a line each");
  }
  if (list->size() > static_cast<size_t>(context.limits.max_choices)) {
    return BadInput("'prompt': {} prompts, expected at most {}", list->size(),
                    context.limits.max_choices);
  }
  for (const JsonValue one : *list) {
    if (one.kind() != kind) {
      return BadInput("'prompt': expected prompts of one kind, found {} behind {}",
                      JsonKindName(one.kind()), JsonKindName(kind));
    }
    if (kind == JsonKind::kString) {
      NIBBLE_RETURN_IF_ERROR(add(one));
      continue;
    }
    NIBBLE_TRY(auto ids, ReadIds(*one.AsArray()));
    out.ids.push_back(std::move(ids));
  }
  return out;
}

ApiResult<void> CheckLengths(const OpenAiRequest& out, const Prompts& prompts,
                             const OpenAiContext& context) {
  const int max_context = context.limits.max_context;
  if (max_context <= 0) return {};
  const bool chat = out.endpoint == Endpoint::kChatCompletions;
  const int asked = out.asks_tokens ? out.request.max_tokens : std::min(out.request.max_tokens, 1);
  const int answer = std::max(asked, asked == 0 ? 0 : 1);
  for (const std::vector<TokenId>& ids : prompts.ids) {
    if (ids.size() + static_cast<size_t>(answer) <= static_cast<size_t>(max_context)) continue;
    return std::unexpected(ApiError{
        .status = 400,
        // OpenAI's words at the beginning: LiteLLM and others look for them.
        .message = fmt::format("This model's maximum context length is {} tokens, of prompt and "
                               "answer together; the prompt has {}{} and the answer {} {}",
                               max_context, ids.size() > MostCounted(context) ? "more than " : "",
                               std::min(ids.size(), MostCounted(context)),
                               out.asks_tokens && asked >= 0 ? "asks for" : "needs", answer),
        .param = chat ? "messages" : "prompt",
        .code = "context_length_exceeded"});
  }
  return {};
}

// What the engine would find wrong with a later prompt when the first ones are on their way
// already.
Status CheckEach(const Prompts& prompts, int vocabulary) {
  if (prompts.ids.size() < 2) return {};
  for (size_t i = 0; i < prompts.ids.size(); ++i) {
    if (prompts.ids[i].empty()) {
      return BadInput("'prompt': number {} is empty: at least one token is needed", i);
    }
    for (const TokenId id : prompts.ids[i]) {
      if (id.value() >= 0 && id.value() < vocabulary) continue;
      return BadInput("'prompt': number {} has token {}, expected ids from 0 to {}", i, id.value(),
                      vocabulary - 1);
    }
  }
  return {};
}

Status CheckEcho(const OpenAiRequest& out) {
  if (!out.echo) return {};
  const Request& request = out.request;
  if (request.logprobs >= 0 && std::max(request.n, request.best_of) > 1) {
    return BadInput("'echo' with 'logprobs' needs 'n' to be 1");
  }
  return {};
}

Result<OpenAiRequest> ReadMembers(Endpoint endpoint, JsonValue body, const OpenAiContext& context) {
  if (!body.is_object()) {
    return BadInput("'body': expected an object, found {}", JsonKindName(body.kind()));
  }
  OpenAiRequest out;
  out.endpoint = endpoint;
  NIBBLE_RETURN_IF_ERROR(CheckMembers(endpoint, body, context, out.ignored));
  Request& request = out.request;
  request.sampling = context.sampling;
  if (context.live) {
    NIBBLE_TRY(const std::string_view model, body.GetStringOr("model", ""));
    out.model = model;
  }
  NIBBLE_RETURN_IF_ERROR(ReadSampling(body, context, request.sampling));
  NIBBLE_RETURN_IF_ERROR(ReadStops(body, context.limits, request));
  NIBBLE_RETURN_IF_ERROR(ReadLogprobs(endpoint, body, context.limits, request));
  NIBBLE_RETURN_IF_ERROR(ReadCounts(endpoint, body, context, request));
  for (const char* key : {"n_predict", "max_tokens", "max_completion_tokens"}) {
    const auto given = body.Find(key);
    out.asks_tokens = out.asks_tokens || (given && !given->is_null());
  }
  if (context.live) NIBBLE_RETURN_IF_ERROR(ReadDelivery(endpoint, body, out));
  if (endpoint == Endpoint::kChatCompletions) {
    NIBBLE_RETURN_IF_ERROR(ReadChat(body, context, out));
  }
  NIBBLE_RETURN_IF_ERROR(CheckEcho(out));
  if (const auto seed = body.Find("seed"); seed && !seed->is_null()) {
    const auto number = seed->AsInt();
    if (!number) return Within("'seed'", number.error());
    out.seed = static_cast<uint64_t>(*number);
    request.sampling.seed = *out.seed;
  }
  // Before anything is rendered or cut into tokens. Which ids there are only the engine knows.
  NIBBLE_RETURN_IF_ERROR(CheckParameters(request, std::numeric_limits<int>::max()));
  return out;
}

}  // namespace

Result<std::string> RenderMessages(JsonValue body, const ChatTemplate* chat) {
  NIBBLE_RETURN_IF_ERROR(CheckChat(chat));
  NIBBLE_TRY(const Json messages, PlainMessages(body, *chat));
  return Render(body, messages, *chat);
}

ApiResult<OpenAiRequest> ReadOpenAiRequest(Endpoint endpoint, JsonValue body,
                                           const OpenAiContext& context) {
  auto out = ReadMembers(endpoint, body, context);
  if (!out) return std::unexpected(ApiErrorOf(out.error()));
  auto prompts = endpoint == Endpoint::kChatCompletions ? ReadMessages(body, context, *out)
                                                        : ReadPrompts(body, context);
  if (!prompts) return std::unexpected(ApiErrorOf(prompts.error()));
  if (const auto fits = CheckLengths(*out, *prompts, context); !fits) {
    return std::unexpected(fits.error());
  }
  if (endpoint == Endpoint::kCompletions) {
    auto constraint = ReadConstraint(body, context, {}, std::nullopt);
    if (!constraint) return std::unexpected(ApiErrorOf(constraint.error()));
    out->request.constraint = *std::move(constraint);
  }
  if (out->request.constraint && out->request.ignore_end) {
    return std::unexpected(ApiErrorOf(Error{
        ErrorKind::kBadInput, "'ignore_eos': nothing may follow an answer that is constrained"}));
  }
  if (const auto each = CheckEach(*prompts, context.tokenizer->vocab_size()); !each) {
    return std::unexpected(ApiErrorOf(each.error()));
  }
  const int choices = std::max(out->request.n, out->request.best_of);
  const auto count = static_cast<int64_t>(prompts->ids.size());
  if (count * choices > context.limits.max_choices) {
    return std::unexpected(ApiErrorOf(
        Error{ErrorKind::kBadInput,
              fmt::format("n is {}: with {} prompts these are {} answers, expected at most {}",
                          choices, count, count * choices, context.limits.max_choices)}));
  }
  out->request.prompt = std::move(prompts->ids.front());
  prompts->ids.erase(prompts->ids.begin());
  out->more_prompts = std::move(prompts->ids);
  out->prompt_text = std::move(prompts->text);
  return *std::move(out);
}

}  // namespace nibble::server
