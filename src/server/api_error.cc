#include "server/api_error.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace nibble::server {
namespace {

// How messages of the engine begin, and the members they are about.
struct Beginning {
  std::string_view text;
  std::string_view param;
};
constexpr std::array kBeginnings = {
    Beginning{"the prompt", "prompt"},
    Beginning{"prompt token", "prompt"},
    Beginning{"a stop string", "stop"},
    Beginning{"logit_bias", "logit_bias"},
    Beginning{"no token can be drawn", "logit_bias"},
    Beginning{"the request needs KV pages", "prompt"},
};
constexpr std::array<std::string_view, 33> kNames = {"temperature",
                                                     "n_predict",
                                                     "top_k",
                                                     "top_p",
                                                     "min_p",
                                                     "typical_p",
                                                     "repetition_penalty",
                                                     "presence_penalty",
                                                     "frequency_penalty",
                                                     "penalty_last_n",
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
                                                     "max_tokens",
                                                     "max_completion_tokens",
                                                     "n",
                                                     "best_of",
                                                     "logprobs",
                                                     "top_logprobs",
                                                     "priority",
                                                     "seed"};

// "'temperature': expected a number" and "temperature is -1": temperature.
std::string ParamOf(std::string_view message) {
  if (message.starts_with('\'')) {
    const size_t end = message.find('\'', 1);
    if (end != message.npos) return std::string(message.substr(1, end - 1));
  }
  // That the vocabulary lacks what a form asks for is no one member's fault.
  if (message.ends_with("what the grammar lets follow here")) return "";
  for (const Beginning& beginning : kBeginnings) {
    if (message.starts_with(beginning.text)) return std::string(beginning.param);
  }
  const std::string_view word = message.substr(0, message.find(' '));
  return std::ranges::find(kNames, word) != kNames.end() ? std::string(word) : "";
}

std::string_view TypeOf(const ApiError& error) {
  if (error.status == 401) return "authentication_error";
  if (error.status == 429) return "rate_limit_error";
  return error.status < 500 ? "invalid_request_error" : "server_error";
}

}  // namespace

ApiError ApiErrorOf(const Error& error) {
  ApiError out{.status = 500, .message = error.message};
  if (error.kind == ErrorKind::kBadInput) {
    out.status = 400;
    out.param = ParamOf(error.message);
    if (error.message.starts_with("the request needs KV pages")) {
      out.code = "context_length_exceeded";
    }
  }
  if (error.kind == ErrorKind::kNoRoom || error.kind == ErrorKind::kCancelled) out.status = 503;
  return out;
}

Json ErrorBody(const ApiError& error) {
  const auto text = [](const std::string& value) { return value.empty() ? Json() : Json(value); };
  Json out;
  out["error"] = {{"message", error.message},
                  {"type", TypeOf(error)},
                  {"param", text(error.param)},
                  {"code", text(error.code)}};
  return out;
}

}  // namespace nibble::server
