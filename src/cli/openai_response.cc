#include "cli/openai_response.h"

namespace nibble::cli {
namespace {

std::string TextOf(const Tokenizer& tokenizer, TokenId id) {
  return std::string(tokenizer.Bytes(id));
}

Json ChatLogprob(const Tokenizer& tokenizer, TokenId id, float logprob) {
  Json out;
  const std::string bytes = TextOf(tokenizer, id);
  out["token"] = bytes;
  out["logprob"] = logprob;
  out["bytes"] = Json::array();
  for (const char byte : bytes) out["bytes"].push_back(static_cast<unsigned char>(byte));
  return out;
}

Json ChatLogprobs(const Tokenizer& tokenizer, const Answer& answer) {
  Json content = Json::array();
  for (const TokenEvent& token : answer.tokens) {
    Json one = ChatLogprob(tokenizer, token.id, token.logprob);
    one["top_logprobs"] = Json::array();
    for (const TokenLogprob& top : token.top) {
      one["top_logprobs"].push_back(ChatLogprob(tokenizer, top.id, top.logprob));
    }
    content.push_back(std::move(one));
  }
  return {{"content", std::move(content)}};
}

Json CompletionLogprobs(const Tokenizer& tokenizer, const Answer& answer) {
  Json out;
  for (const char* key : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
    out[key] = Json::array();
  }
  size_t offset = 0;
  for (const TokenEvent& token : answer.tokens) {
    const std::string text = TextOf(tokenizer, token.id);
    out["tokens"].push_back(text);
    out["token_logprobs"].push_back(token.logprob);
    Json top = Json::object();
    for (const TokenLogprob& one : token.top) top[TextOf(tokenizer, one.id)] = one.logprob;
    out["top_logprobs"].push_back(std::move(top));
    out["text_offset"].push_back(offset);
    offset += text.size();
  }
  return out;
}

Json Choice(const OpenAiRequest& request, const Tokenizer& tokenizer, const Answer& answer,
            int index) {
  const bool chat = request.endpoint == Endpoint::kChatCompletions;
  Json out;
  out["index"] = index;
  if (chat) {
    out["message"] = {{"role", "assistant"}, {"content", answer.text}};
  } else {
    out["text"] = answer.text;
  }
  if (request.request.logprobs < 0) {
    out["logprobs"] = nullptr;
  } else {
    out["logprobs"] =
        chat ? ChatLogprobs(tokenizer, answer) : CompletionLogprobs(tokenizer, answer);
  }
  out["finish_reason"] = FinishReasonName(answer.finish.reason);
  return out;
}

}  // namespace

Json OpenAiResponse(const OpenAiRequest& request, const ResponseName& name,
                    const Tokenizer& tokenizer, const std::vector<Answer>& answers) {
  const bool chat = request.endpoint == Endpoint::kChatCompletions;
  Json out;
  out["id"] = (chat ? "chatcmpl-" : "cmpl-") + name.id;
  out["object"] = chat ? "chat.completion" : "text_completion";
  out["created"] = 0;
  out["model"] = name.model;
  out["choices"] = Json::array();
  int generated = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    out["choices"].push_back(Choice(request, tokenizer, answers[i], static_cast<int>(i)));
    generated += answers[i].finish.usage.generated_tokens;
  }
  const int prompt = answers.empty() ? 0 : answers[0].finish.usage.prompt_tokens;
  out["usage"] = {{"prompt_tokens", prompt},
                  {"completion_tokens", generated},
                  {"total_tokens", prompt + generated}};
  return out;
}

Json OpenAiError(const Error& error) {
  const bool caller = HttpStatus(error) == 400;
  Json out;
  out["error"] = {{"message", error.message},
                  {"type", caller ? "invalid_request_error" : "server_error"},
                  {"param", nullptr},
                  {"code", nullptr}};
  return out;
}

int HttpStatus(const Error& error) {
  if (error.kind == ErrorKind::kBadInput) return 400;
  return error.kind == ErrorKind::kNoRoom ? 503 : 500;
}

}  // namespace nibble::cli
