#include "server/openai_fields.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <span>
#include <string_view>

#include "engine/prepared_sampling.h"
#include "engine/sampler.h"
#include "server/openai_constraint.h"

namespace nibble::server {
namespace {

// Members that change nothing in the answer.
constexpr std::array<std::string_view, 10> kIgnored = {"user",
                                                       "metadata",
                                                       "store",
                                                       "service_tier",
                                                       "safety_identifier",
                                                       "prompt_cache_key",
                                                       "prompt_cache_retention",
                                                       "parallel_tool_calls",
                                                       "verbosity",
                                                       "cache_prompt"};
constexpr std::array<std::string_view, 37> kCommon = {"model",
                                                      "n_predict",
                                                      "repeat_penalty",
                                                      "max_tokens",
                                                      "temperature",
                                                      "top_p",
                                                      "top_k",
                                                      "min_p",
                                                      "typical_p",
                                                      "repetition_penalty",
                                                      "presence_penalty",
                                                      "frequency_penalty",
                                                      "top_n_sigma",
                                                      "xtc_probability",
                                                      "xtc_threshold",
                                                      "dynatemp_range",
                                                      "dynatemp_exponent",
                                                      "mirostat",
                                                      "mirostat_tau",
                                                      "mirostat_eta",
                                                      "dry_multiplier",
                                                      "dry_base",
                                                      "dry_allowed_length",
                                                      "dry_penalty_last_n",
                                                      "dry_sequence_breakers",
                                                      "min_tokens",
                                                      "bad_words",
                                                      "logit_bias",
                                                      "seed",
                                                      "stop",
                                                      "n",
                                                      "priority",
                                                      "ignore_eos",
                                                      "logprobs",
                                                      "stream",
                                                      "stream_options",
                                                      "max_completion_tokens"};
constexpr std::array<std::string_view, 6> kOfChat = {
    "messages",   "top_logprobs",    "chat_template_kwargs", "add_generation_prompt",
    "truncation", "reasoning_format"};
constexpr std::array<std::string_view, 4> kOfCompletions = {"prompt", "best_of", "echo",
                                                            "top_logprobs"};
// Would change the answer: fine as long as they ask for nothing, which of a number is `off`.
struct Unsupported {
  std::string_view name;
  double off = 0;
};
constexpr std::array kUnsupported = {
    Unsupported{"functions"}, Unsupported{"function_call"}, Unsupported{"suffix"},
    Unsupported{"audio"}, Unsupported{"prediction"}, Unsupported{"web_search_options"},
    Unsupported{"reasoning_effort"},
    // vLLM's
    Unsupported{"stop_token_ids"}, Unsupported{"prompt_logprobs"}, Unsupported{"logits_processors"},
    Unsupported{"allowed_token_ids"}, Unsupported{"structural_tag"}, Unsupported{"use_beam_search"},
    Unsupported{"length_penalty", 1}, Unsupported{"include_stop_str_in_output"},
    Unsupported{"skip_special_tokens", 1}, Unsupported{"truncate_prompt_tokens"},
    Unsupported{"continue_final_message"}, Unsupported{"chat_template"}, Unsupported{"documents"},
    // llama.cpp's
    Unsupported{"tfs_z", 1}, Unsupported{"samplers"}, Unsupported{"repeat_last_n", 64},
    Unsupported{"min_keep"}, Unsupported{"n_keep"}, Unsupported{"n_probs"},
    Unsupported{"t_max_predict_ms"},
    // Others'
    Unsupported{"tfs", 1}, Unsupported{"typ_p", 1}, Unsupported{"typical", 1}, Unsupported{"top_a"},
    Unsupported{"rep_pen", 1}, Unsupported{"encoder_repetition_penalty", 1},
    Unsupported{"penalty_alpha"}, Unsupported{"epsilon_cutoff"}, Unsupported{"eta_cutoff"},
    Unsupported{"smoothing_factor"}, Unsupported{"guidance_scale", 1},
    Unsupported{"negative_prompt"}, Unsupported{"banned_tokens"}, Unsupported{"banned_strings"},
    // transformers'
    Unsupported{"do_sample", 1}, Unsupported{"num_beams", 1}, Unsupported{"num_beam_groups", 1},
    Unsupported{"diversity_penalty"}, Unsupported{"no_repeat_ngram_size"},
    Unsupported{"bad_words_ids"}, Unsupported{"force_words_ids"}, Unsupported{"suppress_tokens"},
    Unsupported{"max_new_tokens"}, Unsupported{"min_new_tokens"}, Unsupported{"max_length"},
    Unsupported{"min_length"}, Unsupported{"num_return_sequences", 1},
    // Of the other path
    Unsupported{"best_of", 1}, Unsupported{"echo"}};

using Names = std::span<const std::string_view>;

bool Contains(Names names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// null, `off`, false or true for an `off` of 0 or 1, "", "none", "auto", [] and {}.
bool AsksForNothing(JsonValue value, double off) {
  switch (value.kind()) {
    case JsonKind::kNull:
      return true;
    case JsonKind::kBool:
      return (*value.AsBool() ? 1.0 : 0.0) == off;
    case JsonKind::kInt:
    case JsonKind::kDouble:
      return *value.AsDouble() == off;
    case JsonKind::kString: {
      const std::string_view text = *value.AsString();
      return text.empty() || text == "none" || text == "auto";
    }
    case JsonKind::kArray:
      return value.AsArray()->empty();
    case JsonKind::kObject:
      return value.AsObject()->empty();
  }
  return false;
}

Status CheckModalities(JsonValue value) {
  const auto list = value.AsArray();
  if (!list) return Within("'modalities'", list.error());
  for (const JsonValue one : *list) {
    if (!one.is_string() || *one.AsString() != "text") {
      return BadInput("'modalities': only text is supported");
    }
  }
  return {};
}

Result<float> BiasOf(const std::string& place, JsonValue value) {
  if (value.is_bool() && !*value.AsBool()) return -std::numeric_limits<float>::infinity();
  const auto number = value.AsDouble();
  if (!number) return Within(place, number.error());
  // OpenAI: -100 and 100 forbid and force.
  if (*number <= -100) return -std::numeric_limits<float>::infinity();
  return static_cast<float>(*number);
}

Result<TokenId> BiasedId(JsonValue value) {
  const auto id = value.AsInt();
  if (!id) return Within("'logit_bias'", id.error());
  if (*id < 0 || *id > std::numeric_limits<int>::max()) {
    return BadInput("'logit_bias': {} is no token id", *id);
  }
  return TokenId{static_cast<int>(*id)};
}

// llama.cpp's form: [[id or text, number or false], …]; a text stands for its tokens.
Status ReadBiasList(const JsonArray& entries, const OpenAiContext& context,
                    SamplingParams& sampling) {
  const size_t most = context.limits.max_logit_bias;
  for (const JsonValue entry : entries) {
    const auto pair = entry.AsArray();
    if (!pair || pair->size() != 2) {
      return BadInput("'logit_bias': expected entries [token id or text, number or false]");
    }
    auto at = pair->begin();
    const JsonValue what = *at;
    ++at;
    NIBBLE_TRY(const float bias, BiasOf("'logit_bias'", *at));
    if (!what.is_string()) {
      NIBBLE_TRY(const TokenId id, BiasedId(what));
      sampling.logit_bias.push_back({id, bias});
      continue;
    }
    const std::string_view text = *what.AsString();
    if (text.size() > kMostBadWordBytes) {
      return BadInput("'logit_bias': a text of {} bytes, expected at most {}", text.size(),
                      kMostBadWordBytes);
    }
    const auto ids = BiasedTokens(text, *context.tokenizer);
    if (!ids) return std::unexpected(ids.error());
    if (sampling.logit_bias.size() + ids->size() > most) {
      return BadInput("'logit_bias': more than {} tokens, those of its texts counted", most);
    }
    for (const TokenId id : *ids) sampling.logit_bias.push_back({id, bias});
  }
  return {};
}

Status ReadBias(JsonValue body, const OpenAiContext& context, SamplingParams& sampling) {
  const auto bias = body.Find("logit_bias");
  if (!bias || bias->is_null()) return {};
  const auto list = bias->AsArray();
  if (!list && !bias->is_object()) {
    return BadInput("'logit_bias': expected an object of token ids or an array, found {}",
                    JsonKindName(bias->kind()));
  }
  const size_t entries = list ? list->size() : bias->AsObject()->size();
  if (entries > context.limits.max_logit_bias) {
    return BadInput("'logit_bias': {} entries, expected at most {}", entries,
                    context.limits.max_logit_bias);
  }
  if (list) return ReadBiasList(*list, context, sampling);
  const JsonObject members = *bias->AsObject();
  for (const auto& [key, value] : members) {
    int id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size()) {
      return BadInput("'logit_bias': expected token ids as keys, found {}", QuoteJson(key));
    }
    NIBBLE_TRY(const float number, BiasOf(fmt::format("'logit_bias' of {}", id), value));
    sampling.logit_bias.push_back({TokenId{id}, number});
  }
  return {};
}

// An array of at most `most` strings.
Status ReadTexts(JsonValue body, const char* key, size_t most, std::vector<std::string>& out) {
  const auto value = body.Find(key);
  if (!value || value->is_null()) return {};
  const auto list = value->AsArray();
  if (!list) return BadInput("'{}': expected an array of strings", key);
  if (list->size() > most) {
    return BadInput("'{}': {} strings, expected at most {}", key, list->size(), most);
  }
  out.clear();
  for (const JsonValue one : *list) {
    if (!one.is_string()) return BadInput("'{}': expected an array of strings", key);
    out.emplace_back(*one.AsString());
  }
  return {};
}

}  // namespace

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

Status CheckMembers(Endpoint endpoint, JsonValue body, const OpenAiContext& context,
                    std::vector<std::string>& ignored) {
  NIBBLE_TRY(const JsonObject members, body.AsObject());
  const bool chat = endpoint == Endpoint::kChatCompletions;
  for (const auto& [key, value] : members) {
    if (value.is_null() || Contains(kIgnored, key) || Contains(kCommon, key)) continue;
    if (Contains(chat ? Names(kOfChat) : Names(kOfCompletions), key)) continue;
    const bool of_tools = key == "tools" || key == "tool_choice";
    if (IsConstraintMember(key) && (chat || !of_tools)) continue;
    const auto* unsupported = std::ranges::find(kUnsupported, key, &Unsupported::name);
    if (unsupported != kUnsupported.end() || of_tools) {
      if (!AsksForNothing(value, of_tools ? 0 : unsupported->off))
        return BadInput("'{}' is not supported", key);
    } else if (key == "modalities") {
      NIBBLE_RETURN_IF_ERROR(CheckModalities(value));
    } else if (context.live) {
      ignored.emplace_back(key);
    } else {
      return BadInput("'{}' is not supported", key);
    }
  }
  if (const auto user = body.Find("user"); user && !user->is_null() && !user->is_string()) {
    return BadInput("'user': expected a string, found {}", JsonKindName(user->kind()));
  }
  if (context.live) return {};
  for (const char* key : {"stream", "echo"}) {
    const auto value = body.Find(key);
    if (!value || value->is_null()) continue;
    if (!value->is_bool() || *value->AsBool()) {
      return BadInput("'{}': only false is supported", key);
    }
  }
  return {};
}

namespace {

// llama.cpp's name of repetition_penalty.
Status ReadRepeatPenalty(JsonValue body, SamplingParams& sampling) {
  const auto given = body.Find("repeat_penalty");
  if (!given || given->is_null()) return {};
  const auto value = given->AsDouble();
  if (!value) return Within("'repeat_penalty'", value.error());
  const SamplingParams alone{.repetition_penalty = static_cast<float>(*value)};
  if (!CheckSampling(alone, std::numeric_limits<int>::max())) {
    return BadInput("'repeat_penalty': {} is no number from 0.000001 to 1000000", *value);
  }
  sampling.repetition_penalty = alone.repetition_penalty;
  return {};
}

}  // namespace

Status ReadSampling(JsonValue body, const OpenAiContext& context, SamplingParams& sampling) {
  struct Number {
    const char* key;
    float* value;
  };
  for (const Number& number :
       {Number{"temperature", &sampling.temperature}, Number{"top_p", &sampling.top_p},
        Number{"min_p", &sampling.min_p}, Number{"typical_p", &sampling.typical_p},
        Number{"repetition_penalty", &sampling.repetition_penalty},
        Number{"presence_penalty", &sampling.presence_penalty},
        Number{"frequency_penalty", &sampling.frequency_penalty},
        Number{"top_n_sigma", &sampling.top_n_sigma},
        Number{"xtc_probability", &sampling.xtc_probability},
        Number{"xtc_threshold", &sampling.xtc_threshold},
        Number{"dynatemp_range", &sampling.dynatemp_range},
        Number{"dynatemp_exponent", &sampling.dynatemp_exponent},
        Number{"mirostat_tau", &sampling.mirostat_tau},
        Number{"mirostat_eta", &sampling.mirostat_eta},
        Number{"dry_multiplier", &sampling.dry_multiplier},
        Number{"dry_base", &sampling.dry_base}}) {
    NIBBLE_TRY(const double value, body.GetDoubleOr(number.key, double{*number.value}));
    *number.value = static_cast<float>(value);
  }
  NIBBLE_RETURN_IF_ERROR(ReadRepeatPenalty(body, sampling));
  struct Count {
    const char* key;
    int* value;
  };
  for (const Count& count : {Count{"top_k", &sampling.top_k}, Count{"mirostat", &sampling.mirostat},
                             Count{"dry_allowed_length", &sampling.dry_allowed_length},
                             Count{"dry_penalty_last_n", &sampling.dry_penalty_last_n},
                             Count{"min_tokens", &sampling.min_tokens}}) {
    NIBBLE_TRY(const std::optional<int> value, FindInt(body, count.key));
    *count.value = value.value_or(*count.value);
  }
  if (sampling.top_k == -1) sampling.top_k = 0;  // another word for all
  NIBBLE_RETURN_IF_ERROR(
      ReadTexts(body, "dry_sequence_breakers", kMostDryBreakers, sampling.dry_sequence_breakers));
  NIBBLE_RETURN_IF_ERROR(ReadTexts(body, "bad_words", kMostBadWords, sampling.bad_words));
  return ReadBias(body, context, sampling);
}

Status ReadStops(JsonValue body, const OpenAiLimits& limits, Request& request) {
  const auto stop = body.Find("stop");
  if (!stop || stop->is_null()) return {};
  if (stop->is_string()) {
    request.stop.emplace_back(*stop->AsString());
  } else {
    const auto list = stop->AsArray();
    if (!list) return BadInput("'stop': expected a string or an array of strings");
    if (list->size() > limits.max_stops) {
      return BadInput("'stop': {} strings, expected at most {}", list->size(), limits.max_stops);
    }
    for (const JsonValue one : *list) {
      if (!one.is_string()) return BadInput("'stop': expected an array of strings");
      request.stop.emplace_back(*one.AsString());
    }
  }
  for (const std::string& one : request.stop) {
    if (one.empty() || one.size() > kMostStopBytes) {
      return BadInput("'stop': a string of {} bytes, expected 1 to {}", one.size(), kMostStopBytes);
    }
  }
  return {};
}

Status ReadLogprobs(Endpoint endpoint, JsonValue body, const OpenAiLimits& limits,
                    Request& request) {
  NIBBLE_TRY(const std::optional<int> top, FindInt(body, "top_logprobs"));
  const auto check = [&](const char* key, int value) -> Status {
    if (value >= 0 && value <= limits.max_logprobs) return {};
    return BadInput("{} is {}, expected a number from 0 to {}", key, value, limits.max_logprobs);
  };
  if (endpoint == Endpoint::kCompletions) {
    NIBBLE_TRY(const std::optional<int> logprobs, FindInt(body, "logprobs"));
    if (top) return BadInput("'top_logprobs' belongs to chat completions; use 'logprobs'");
    request.logprobs = logprobs.value_or(-1);
    return logprobs ? check("logprobs", *logprobs) : Status();
  }
  NIBBLE_TRY(const bool wanted, body.GetBoolOr("logprobs", false));
  if (top && *top != 0 && !wanted) {
    return BadInput("'top_logprobs' needs 'logprobs' to be true");
  }
  if (top) NIBBLE_RETURN_IF_ERROR(check("top_logprobs", *top));
  request.logprobs = wanted ? top.value_or(0) : -1;
  return {};
}

Status ReadCounts(Endpoint endpoint, JsonValue body, const OpenAiContext& context,
                  Request& request) {
  NIBBLE_TRY(request.ignore_end, body.GetBoolOr("ignore_eos", false));
  const auto set = [&](const char* key, int& value) -> Status {
    NIBBLE_TRY(const std::optional<int> given, FindInt(body, key));
    value = given.value_or(value);
    return {};
  };
  NIBBLE_RETURN_IF_ERROR(set("n", request.n));
  NIBBLE_RETURN_IF_ERROR(set("best_of", request.best_of));
  NIBBLE_RETURN_IF_ERROR(set("priority", request.priority));
  const int most = context.limits.max_choices;
  const int choices = std::max(request.n, request.best_of);
  if (choices > most) {
    return BadInput("{} is {}, expected at most {}", request.n > most ? "n" : "best_of", choices,
                    most);
  }
  if (const int room = context.limits.max_queue; room > 0 && choices > room) {
    return BadInput("{} is {}, and no more than {} answers may wait (--max-queue)",
                    request.n > room ? "n" : "best_of", choices, room);
  }
  // OpenAI's completions end after 16 tokens unless they say otherwise.
  const int limit = context.limits.max_tokens;
  request.max_tokens = context.max_tokens.value_or(endpoint == Endpoint::kCompletions ? 16 : -1);
  if (limit > 0) request.max_tokens = std::min(request.max_tokens, limit);
  for (const char* key : {"n_predict", "max_tokens", "max_completion_tokens"}) {
    NIBBLE_TRY(const std::optional<int> given, FindInt(body, key));
    request.max_tokens = given.value_or(request.max_tokens);
    if (request.max_tokens < -1) {
      return BadInput("{} is {}, expected at least -1", key, request.max_tokens);
    }
    if (limit > 0 && request.max_tokens > limit) {
      return BadInput("{} is {}, expected at most {}", key, request.max_tokens, limit);
    }
  }
  if (limit > 0 && request.max_tokens < 0) request.max_tokens = limit;
  return {};
}

Status ReadChat(JsonValue body, const OpenAiContext& context, OpenAiRequest& out) {
  NIBBLE_TRY(const std::string_view truncation, body.GetStringOr("truncation", "disabled"));
  if (truncation != "disabled" && truncation != "auto") {
    return BadInput("'truncation': expected \"auto\" or \"disabled\", found {}",
                    QuoteJson(truncation));
  }
  out.drop_turns = truncation == "auto";
  if (out.drop_turns && context.limits.max_context <= 0) {
    return BadInput("'truncation': \"auto\" is not supported here");
  }
  NIBBLE_TRY(const std::string_view format, body.GetStringOr("reasoning_format", "auto"));
  if (format != "auto" && format != "deepseek" && format != "none") {
    return BadInput("'reasoning_format': expected \"auto\", \"deepseek\" or \"none\", found {}",
                    QuoteJson(format));
  }
  if (format == "none" || context.chat == nullptr) return {};
  out.reasoning = FindReasoning(context.chat->source(), "");
  return {};
}

Status ReadDelivery(Endpoint endpoint, JsonValue body, OpenAiRequest& out) {
  NIBBLE_TRY(out.stream, body.GetBoolOr("stream", false));
  if (endpoint == Endpoint::kCompletions) {
    NIBBLE_TRY(out.echo, body.GetBoolOr("echo", false));
  }
  const auto options = body.Find("stream_options");
  if (!options || options->is_null()) return {};
  if (!out.stream) return BadInput("'stream_options' needs 'stream' to be true");
  if (!options->is_object()) {
    return BadInput("'stream_options': expected an object, found {}",
                    JsonKindName(options->kind()));
  }
  const auto usage = options->GetBoolOr("include_usage", false);
  if (!usage) return Within("'stream_options'", usage.error());
  out.stream_usage = *usage;
  return {};
}

}  // namespace nibble::server
