#include "cli/openai_request.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>

#include "cli/json_output.h"

namespace nibble::cli {
namespace {

// Members that change nothing in the answer.
constexpr std::array<std::string_view, 9> kIgnored = {"model",
                                                      "user",
                                                      "metadata",
                                                      "store",
                                                      "service_tier",
                                                      "safety_identifier",
                                                      "prompt_cache_key",
                                                      "stream_options",
                                                      "parallel_tool_calls"};
constexpr std::array<std::string_view, 21> kCommon = {"max_tokens",
                                                      "temperature",
                                                      "top_p",
                                                      "top_k",
                                                      "min_p",
                                                      "typical_p",
                                                      "repetition_penalty",
                                                      "presence_penalty",
                                                      "frequency_penalty",
                                                      "logit_bias",
                                                      "seed",
                                                      "stop",
                                                      "n",
                                                      "priority",
                                                      "ignore_eos",
                                                      "logprobs",
                                                      "stream",
                                                      "max_completion_tokens",
                                                      "messages",
                                                      "top_logprobs",
                                                      "response_format"};
constexpr std::array<std::string_view, 4> kOfCompletions = {"prompt", "best_of", "echo", "suffix"};

bool Contains(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

Status CheckMembers(Endpoint endpoint, JsonValue body) {
  NIBBLE_TRY(const JsonObject members, body.AsObject());
  for (const auto& [key, value] : members) {
    if (value.is_null() || Contains(kIgnored, key) || Contains(kCommon, key)) continue;
    if (endpoint == Endpoint::kCompletions && Contains(kOfCompletions, key)) continue;
    return BadInput("'{}' is not supported", key);
  }
  const auto off = [&](const char* key) -> Status {
    const auto value = body.Find(key);
    if (!value || value->is_null()) return {};
    if (value->is_bool() && !*value->AsBool()) return {};
    return BadInput("'{}': only false is supported", key);
  };
  NIBBLE_RETURN_IF_ERROR(off("stream"));
  NIBBLE_RETURN_IF_ERROR(off("echo"));
  if (const auto suffix = body.Find("suffix"); suffix && !suffix->is_null()) {
    return BadInput("'suffix' is not supported");
  }
  if (const auto format = body.Find("response_format"); format && !format->is_null()) {
    NIBBLE_TRY(const std::string_view type, format->GetString("type"));
    if (type != "text") return BadInput("'response_format': only text is supported");
  }
  return {};
}

// An integer member, in the range of int.
Result<std::optional<int>> FindInt(JsonValue body, const char* key) {
  const auto value = body.Find(key);
  if (!value || value->is_null()) return std::nullopt;
  const auto number = value->AsInt();
  if (!number) return Within(std::string("'") + key + "'", number.error());
  if (*number < std::numeric_limits<int>::min() || *number > std::numeric_limits<int>::max()) {
    return BadInput("'{}': {} is out of range", key, *number);
  }
  return static_cast<int>(*number);
}

Status ReadBias(JsonValue body, SamplingParams& sampling) {
  const auto bias = body.Find("logit_bias");
  if (!bias || bias->is_null()) return {};
  if (!bias->is_object()) {
    return BadInput("'logit_bias': expected an object of token ids, found {}",
                    JsonKindName(bias->kind()));
  }
  const JsonObject members = *bias->AsObject();
  for (const auto& [key, value] : members) {
    int id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size()) {
      return BadInput("'logit_bias': expected token ids as keys, found {}", QuoteJson(key));
    }
    const auto number = value.AsDouble();
    if (!number) return Within(fmt::format("'logit_bias' of {}", id), number.error());
    // OpenAI: -100 and 100 forbid and force.
    const double forced = *number <= -100 ? -std::numeric_limits<double>::infinity() : *number;
    sampling.logit_bias.push_back({TokenId{id}, static_cast<float>(forced)});
  }
  return {};
}

Status ReadSampling(JsonValue body, SamplingParams& sampling) {
  struct Number {
    const char* key;
    float* value;
  };
  for (const Number& number :
       {Number{"temperature", &sampling.temperature}, Number{"top_p", &sampling.top_p},
        Number{"min_p", &sampling.min_p}, Number{"typical_p", &sampling.typical_p},
        Number{"repetition_penalty", &sampling.repetition_penalty},
        Number{"presence_penalty", &sampling.presence_penalty},
        Number{"frequency_penalty", &sampling.frequency_penalty}}) {
    NIBBLE_TRY(const double value, body.GetDoubleOr(number.key, double{*number.value}));
    *number.value = static_cast<float>(value);
  }
  NIBBLE_TRY(const std::optional<int> top_k, FindInt(body, "top_k"));
  sampling.top_k = std::max(top_k.value_or(sampling.top_k), 0);  // -1 is another word for all
  return ReadBias(body, sampling);
}

Status ReadStops(JsonValue body, Request& request) {
  const auto stop = body.Find("stop");
  if (!stop || stop->is_null()) return {};
  if (stop->is_string()) {
    request.stop.emplace_back(*stop->AsString());
    return {};
  }
  const auto list = stop->AsArray();
  if (!list) return BadInput("'stop': expected a string or an array of strings");
  for (const JsonValue one : *list) {
    if (!one.is_string()) return BadInput("'stop': expected an array of strings");
    request.stop.emplace_back(*one.AsString());
  }
  return {};
}

Status ReadLogprobs(Endpoint endpoint, JsonValue body, Request& request) {
  NIBBLE_TRY(const std::optional<int> top, FindInt(body, "top_logprobs"));
  if (endpoint == Endpoint::kCompletions) {
    NIBBLE_TRY(const std::optional<int> logprobs, FindInt(body, "logprobs"));
    if (top) return BadInput("'top_logprobs' belongs to chat completions; use 'logprobs'");
    request.logprobs = logprobs.value_or(-1);
    return {};
  }
  NIBBLE_TRY(const bool wanted, body.GetBoolOr("logprobs", false));
  if (top && !wanted) return BadInput("'top_logprobs' needs 'logprobs' to be true");
  if (top && *top < 0) return BadInput("'top_logprobs' is {}, expected at least 0", *top);
  request.logprobs = wanted ? top.value_or(0) : -1;
  return {};
}

// A message's content as text: a string, or parts of type text.
Result<std::string> ContentText(JsonValue content) {
  if (content.is_string()) return std::string(*content.AsString());
  if (content.is_null()) return std::string();
  const auto parts = content.AsArray();
  if (!parts) return BadInput("expected a string or an array of parts");
  std::string text;
  for (const JsonValue part : *parts) {
    NIBBLE_TRY(const std::string_view type, part.GetString("type"));
    if (type != "text") return BadInput("parts of type {} are not supported", QuoteJson(type));
    NIBBLE_TRY(const std::string_view piece, part.GetString("text"));
    text += piece;
  }
  return text;
}

Result<std::vector<TokenId>> ReadMessages(JsonValue body, const OpenAiContext& context) {
  if (context.chat == nullptr) {
    return BadInput("the model has no chat template; use /v1/completions or --chat-template");
  }
  NIBBLE_TRY(const JsonValue messages, body.Get("messages"));
  const auto list = messages.AsArray();
  if (!list || list->empty()) return BadInput("'messages': expected a non-empty array");
  Json out = Json::array();
  int number = 0;
  for (const JsonValue message : *list) {
    const std::string place = fmt::format("'messages[{}]'", number++);
    if (!message.is_object()) return BadInput("{}: expected an object", place);
    const auto role = message.GetString("role");
    if (!role) return Within(place, role.error());
    const auto content = message.Find("content");
    if (!content) return BadInput("{}: 'content' is missing", place);
    const auto text = ContentText(*content);
    if (!text) return Within(place + ": 'content'", text.error());
    Json copy = Json::parse(message.ToString(), nullptr, false);
    copy["content"] = *text;
    out.push_back(std::move(copy));
  }
  NIBBLE_TRY(const std::string text,
             context.chat->Apply(out.dump(-1, ' ', false, Json::error_handler_t::replace)));
  return context.tokenizer->Encode(text, {.add_special = false, .parse_special = true});
}

Result<std::vector<TokenId>> ReadPrompt(JsonValue body, const OpenAiContext& context) {
  NIBBLE_TRY(const JsonValue prompt, body.Get("prompt"));
  if (prompt.is_string()) return context.tokenizer->Encode(*prompt.AsString());
  const auto list = prompt.AsArray();
  if (!list || list->empty()) {
    return BadInput("'prompt': expected a string or an array of token ids");
  }
  std::vector<TokenId> ids;
  for (const JsonValue one : *list) {
    if (one.is_string() && list->size() == 1) return context.tokenizer->Encode(*one.AsString());
    const auto id = one.AsInt();
    if (!id) {
      return BadInput("'prompt': expected token ids; several prompts need a line each");
    }
    ids.emplace_back(static_cast<int>(std::clamp<int64_t>(*id, -1, 1 << 30)));
  }
  return ids;
}

}  // namespace

Result<OpenAiRequest> ReadOpenAiRequest(Endpoint endpoint, JsonValue body,
                                        const OpenAiContext& context) {
  if (!body.is_object()) {
    return BadInput("'body': expected an object, found {}", JsonKindName(body.kind()));
  }
  NIBBLE_RETURN_IF_ERROR(CheckMembers(endpoint, body));
  OpenAiRequest out{.endpoint = endpoint, .request = {}, .seed = {}};
  Request& request = out.request;
  request.sampling = context.sampling;
  NIBBLE_RETURN_IF_ERROR(ReadSampling(body, request.sampling));
  NIBBLE_RETURN_IF_ERROR(ReadStops(body, request));
  NIBBLE_RETURN_IF_ERROR(ReadLogprobs(endpoint, body, request));
  NIBBLE_TRY(request.ignore_end, body.GetBoolOr("ignore_eos", false));
  const auto set = [&](const char* key, int& value) -> Status {
    NIBBLE_TRY(const std::optional<int> given, FindInt(body, key));
    value = given.value_or(value);
    return {};
  };
  NIBBLE_RETURN_IF_ERROR(set("n", request.n));
  NIBBLE_RETURN_IF_ERROR(set("best_of", request.best_of));
  NIBBLE_RETURN_IF_ERROR(set("priority", request.priority));
  // OpenAI's completions end after 16 tokens unless they say otherwise.
  request.max_tokens = context.max_tokens.value_or(endpoint == Endpoint::kCompletions ? 16 : -1);
  NIBBLE_RETURN_IF_ERROR(set("max_tokens", request.max_tokens));
  NIBBLE_RETURN_IF_ERROR(set("max_completion_tokens", request.max_tokens));
  if (const auto seed = body.Find("seed"); seed && !seed->is_null()) {
    const auto number = seed->AsInt();
    if (!number) return Within("'seed'", number.error());
    out.seed = static_cast<uint64_t>(*number);
    request.sampling.seed = *out.seed;
  }
  NIBBLE_TRY(request.prompt, endpoint == Endpoint::kChatCompletions ? ReadMessages(body, context)
                                                                    : ReadPrompt(body, context));
  return out;
}

}  // namespace nibble::cli
