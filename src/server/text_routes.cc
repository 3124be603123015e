#include "server/text_routes.h"

#include <vector>

namespace nibble::server {
namespace {

constexpr JsonLimits kBodyLimits{
    .max_bytes = size_t{256} << 20, .max_values = size_t{2} << 20, .max_depth = 64};

// The text of `content`, `prompt` or `messages`, and whether marks go around it unless said
// otherwise.
struct Text {
  std::string text;
  bool add_special = false;
};

Result<Text> ReadText(JsonValue body, const OpenAiContext& context) {
  if (const auto messages = body.Find("messages"); messages && !messages->is_null()) {
    NIBBLE_TRY(std::string text, RenderMessages(body, context.chat));
    return Text{std::move(text), false};
  }
  const bool content = body.Find("content").has_value();
  NIBBLE_TRY(const std::string_view text, body.GetString(content ? "content" : "prompt"));
  return Text{std::string(text), !content};
}

Result<Json> Tokenize(JsonValue body, const OpenAiContext& context) {
  NIBBLE_TRY(const Text text, ReadText(body, context));
  NIBBLE_TRY(const bool plain, body.GetBoolOr("add_special", text.add_special));
  NIBBLE_TRY(const bool add_special, body.GetBoolOr("add_special_tokens", plain));
  NIBBLE_TRY(const bool parse_special, body.GetBoolOr("parse_special", true));
  NIBBLE_TRY(const bool pieces, body.GetBoolOr("with_pieces", false));
  const Tokenizer& tokenizer = *context.tokenizer;
  NIBBLE_TRY(const auto ids, tokenizer.Encode(text.text, {.add_special = add_special,
                                                          .parse_special = parse_special}));
  Json tokens = Json::array();
  for (const TokenId id : ids) {
    if (pieces) {
      tokens.push_back({{"id", id.value()}, {"piece", tokenizer.Bytes(id)}});
    } else {
      tokens.push_back(id.value());
    }
  }
  return Json{{"tokens", std::move(tokens)},
              {"count", ids.size()},
              {"max_model_len", context.limits.max_context}};
}

Result<Json> Detokenize(JsonValue body, const OpenAiContext& context) {
  NIBBLE_TRY(const JsonValue tokens, body.Get("tokens"));
  const auto list = tokens.AsArray();
  if (!list) return Within("'tokens'", list.error());
  std::vector<TokenId> ids;
  for (const JsonValue one : *list) {
    const auto id = one.AsInt();
    if (!id) return Within("'tokens'", id.error());
    if (*id < 0 || *id >= context.tokenizer->vocab_size()) {
      return BadInput("'tokens': {} is no id from 0 to {}", *id,
                      context.tokenizer->vocab_size() - 1);
    }
    ids.emplace_back(static_cast<int32_t>(*id));
  }
  const std::string text = context.tokenizer->Decode(ids);
  return Json{{"content", text}, {"prompt", text}};
}

Result<Json> AnswerObject(std::string_view path, JsonValue body, const OpenAiContext& context) {
  if (!body.is_object()) {
    return BadInput("the body: expected an object, found {}", JsonKindName(body.kind()));
  }
  if (path == "/tokenize") return Tokenize(body, context);
  if (path == "/detokenize") return Detokenize(body, context);
  NIBBLE_TRY(std::string text, RenderMessages(body, context.chat));
  return Json{{"prompt", std::move(text)}};
}

}  // namespace

ApiResult<JsonDocument> ParseBody(std::string_view body) {
  auto document = JsonDocument::Parse(std::string(body), kBodyLimits);
  if (!document) {
    return std::unexpected(ApiError{.status = 400,
                                    .message = "the body is no JSON: " + document.error().message,
                                    .code = "invalid_json"});
  }
  return *std::move(document);
}

ApiResult<Json> AnswerText(std::string_view path, std::string_view body,
                           const OpenAiContext& context) {
  auto document = ParseBody(body);
  if (!document) return std::unexpected(document.error());
  auto json = AnswerObject(path, document->root(), context);
  if (!json) return std::unexpected(ApiErrorOf(json.error()));
  return *std::move(json);
}

}  // namespace nibble::server
