#include "server/openai_response.h"

#include <algorithm>
#include <span>

#include "container/json_text.h"

namespace nibble::server {
namespace {

Json ChatLogprob(const Tokenizer& tokenizer, TokenId id, float logprob) {
  Json out;
  const std::string_view bytes = tokenizer.Bytes(id);
  out["token"] = bytes;
  out["logprob"] = logprob;
  out["bytes"] = Json::array();
  for (const char byte : bytes) out["bytes"].push_back(static_cast<unsigned char>(byte));
  return out;
}

Json ChatLogprobs(const Tokenizer& tokenizer, std::span<const TokenEvent> tokens) {
  Json content = Json::array();
  for (const TokenEvent& token : tokens) {
    Json one = ChatLogprob(tokenizer, token.id, token.logprob);
    one["top_logprobs"] = Json::array();
    for (const TokenLogprob& top : token.top) {
      one["top_logprobs"].push_back(ChatLogprob(tokenizer, top.id, top.logprob));
    }
    content.push_back(std::move(one));
  }
  return {{"content", std::move(content)}};
}

// The tokens of a prompt that is echoed, and those of an answer.
struct TokenSpans {
  std::span<const TokenEvent> prompt;
  std::span<const TokenEvent> answer;
};

void AddCompletionLogprob(const Tokenizer& tokenizer, const TokenEvent& token, bool known,
                          size_t& offset, Json& out) {
  const std::string text(tokenizer.Bytes(token.id));
  out["tokens"].push_back(text);
  out["text_offset"].push_back(offset);
  offset += text.size();
  if (!known) {
    out["token_logprobs"].push_back(nullptr);
    out["top_logprobs"].push_back(nullptr);
    return;
  }
  out["token_logprobs"].push_back(token.logprob);
  Json top = Json::object();
  for (const TokenLogprob& one : token.top) {
    const std::string key(tokenizer.Bytes(one.id));
    if (!top.contains(key)) top[key] = one.logprob;  // of equal texts the more probable
  }
  out["top_logprobs"].push_back(std::move(top));
}

Json CompletionLogprobs(const Tokenizer& tokenizer, const TokenSpans& spans, size_t& offset) {
  Json out;
  for (const char* key : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
    out[key] = Json::array();
  }
  bool first = true;
  for (const TokenEvent& token : spans.prompt) {
    AddCompletionLogprob(tokenizer, token, !first, offset, out);
    first = false;
  }
  for (const TokenEvent& token : spans.answer) {
    AddCompletionLogprob(tokenizer, token, true, offset, out);
  }
  return out;
}

Json ChatMessageJson(const OpenAiRequest& request, const std::string& text) {
  if (!request.reasoning) return {{"role", "assistant"}, {"content", text}};
  ReasoningSplitter splitter(*request.reasoning);
  ReasoningSplitter::Parts parts = splitter.Add(text);
  ReasoningSplitter::Parts rest = splitter.End();
  parts.reasoning += rest.reasoning;
  parts.text += rest.text;
  Json out = {{"role", "assistant"}, {"content", std::move(parts.text)}};
  if (!parts.reasoning.empty()) out["reasoning_content"] = std::move(parts.reasoning);
  return out;
}

Json Choice(const OpenAiRequest& request, const Tokenizer& tokenizer, const PromptAnswers& prompt,
            size_t choice) {
  const Answer& answer = prompt.answers[choice];
  const bool chat = request.endpoint == Endpoint::kChatCompletions;
  Json out;
  out["index"] = nullptr;  // the caller's
  if (chat) {
    out["message"] = ChatMessageJson(request, answer.text);
  } else {
    out["text"] = prompt.echo + answer.text;
  }
  size_t offset = 0;
  if (request.request.logprobs < 0) {
    out["logprobs"] = nullptr;
  } else {
    out["logprobs"] = chat ? ChatLogprobs(tokenizer, answer.tokens)
                           : CompletionLogprobs(tokenizer, {prompt.prompt, answer.tokens}, offset);
  }
  out["finish_reason"] = FinishReasonName(answer.finish.reason);
  return out;
}

}  // namespace

void TokenCounts::Add(int choice, const Usage& usage) {
  generated += usage.generated_tokens;
  queue_s += usage.queue_s;
  prefill_s += usage.prefill_s;
  decode_s += usage.decode_s;
  decode_steps += usage.decode_steps;
  drafted += usage.drafted_tokens;
  accepted += usage.accepted_tokens;
  weight_bytes += usage.decode_weight_bytes;
  kv_bytes += usage.decode_kv_bytes;
  if (choice != 0) return;
  prompt += usage.prompt_tokens;
  cached += usage.cached_prompt_tokens;
}

Json UsageJson(const TokenCounts& counts, bool live) {
  Json out = {{"prompt_tokens", counts.prompt},
              {"completion_tokens", counts.generated},
              {"total_tokens", counts.prompt + counts.generated}};
  if (!live) return out;
  out["prompt_tokens_details"] = {{"cached_tokens", counts.cached}};
  if (counts.drafted > 0) {
    out["completion_tokens_details"] = {
        {"accepted_prediction_tokens", counts.accepted},
        {"rejected_prediction_tokens", counts.drafted - counts.accepted}};
  }
  out["nibble"] = {{"queue_s", counts.queue_s},
                   {"prefill_s", counts.prefill_s},
                   {"decode_s", counts.decode_s},
                   {"decode_steps", counts.decode_steps},
                   {"decode_weight_bytes", counts.weight_bytes},
                   {"decode_kv_bytes", counts.kv_bytes}};
  return out;
}

Json OpenAiResponse(const OpenAiRequest& request, const ResponseName& name,
                    const Tokenizer& tokenizer, std::vector<PromptAnswers> prompts) {
  const bool chat = request.endpoint == Endpoint::kChatCompletions;
  Json out;
  out["id"] = (chat ? "chatcmpl-" : "cmpl-") + name.id;
  out["object"] = chat ? "chat.completion" : "text_completion";
  out["created"] = name.created;
  out["model"] = name.model;
  out["choices"] = Json::array();
  TokenCounts counts;
  int index = 0;
  for (const PromptAnswers& prompt : prompts) {
    for (size_t i = 0; i < prompt.answers.size(); ++i) {
      Json choice = Choice(request, tokenizer, prompt, i);
      choice["index"] = index++;
      out["choices"].push_back(std::move(choice));
      counts.Add(static_cast<int>(i), prompt.answers[i].finish.usage);
    }
  }
  out["usage"] = UsageJson(counts, name.live);
  if (request.dropped_messages > 0) out["dropped_messages"] = request.dropped_messages;
  return out;
}

ChunkWriter::ChunkWriter(const OpenAiRequest& request, const ResponseName& name,
                         const Tokenizer& tokenizer)
    : chat_(request.endpoint == Endpoint::kChatCompletions),
      logprobs_(request.request.logprobs >= 0),
      usage_(request.stream_usage),
      tokenizer_(tokenizer),
      reasoning_(request.reasoning) {
  head_ = "data: {\"id\":\"";
  head_ += (chat_ ? "chatcmpl-" : "cmpl-") + name.id + "\",\"object\":\"";
  head_ += chat_ ? "chat.completion.chunk" : "text_completion";
  head_ += "\",\"created\":" + std::to_string(name.created) + ",\"model\":";
  AppendJsonString(name.model, head_);
  head_ += ",\"choices\":[";
  tail_ = usage_ ? "],\"usage\":null" : "]";
  if (request.dropped_messages > 0) {
    tail_ += ",\"dropped_messages\":" + std::to_string(request.dropped_messages);
  }
  tail_ += "}\n\n";
}

std::string ChunkWriter::Chunk(int index, std::string_view text, const Json* logprobs,
                               std::string_view reason) const {
  std::string out = head_;
  out += "{\"index\":" + std::to_string(index);
  if (!chat_) {
    out += ",\"text\":";
    AppendJsonString(text, out);
  } else if (reason.empty()) {
    out += ",\"delta\":{\"content\":";
    AppendJsonString(text, out);
    out += '}';
  } else {
    out += ",\"delta\":{}";
  }
  out += ",\"logprobs\":";
  out += logprobs == nullptr ? "null" : DumpJson(*logprobs);
  out += ",\"finish_reason\":";
  out += reason.empty() ? "null" : "\"" + std::string(reason) + "\"";
  return out + "}" + tail_;
}

std::string ChunkWriter::ChatChunks(int index, const ReasoningSplitter::Parts& parts,
                                    const Json* logprobs) const {
  std::string out;
  if (!parts.reasoning.empty()) {
    out = head_ + "{\"index\":" + std::to_string(index) + ",\"delta\":{\"reasoning_content\":";
    AppendJsonString(parts.reasoning, out);
    out += "},\"logprobs\":" + (logprobs == nullptr ? "null" : DumpJson(*logprobs));
    out += ",\"finish_reason\":null}" + tail_;
    logprobs = nullptr;  // said
  }
  if (parts.text.empty() && logprobs == nullptr) return out;
  return out + Chunk(index, parts.text, logprobs, "");
}

ReasoningSplitter::Parts ChunkWriter::Split(int index, std::string_view text, bool end) {
  if (!reasoning_) return {.reasoning = "", .text = std::string(text)};
  while (splitters_.size() <= static_cast<size_t>(index)) splitters_.emplace_back(*reasoning_);
  ReasoningSplitter& splitter = splitters_[static_cast<size_t>(index)];
  ReasoningSplitter::Parts parts = splitter.Add(text);
  if (end) {
    const ReasoningSplitter::Parts rest = splitter.End();
    parts.reasoning += rest.reasoning;
    parts.text += rest.text;
  }
  return parts;
}

std::string ChunkWriter::First(int index, const PromptAnswers& echo) {
  if (chat_) {
    return head_ + "{\"index\":" + std::to_string(index) +
           R"(,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null})" +
           tail_;
  }
  if (echo.echo.empty()) return "";
  if (!logprobs_) return Chunk(index, echo.echo, nullptr, "");
  if (offsets_.size() <= static_cast<size_t>(index))
    offsets_.resize(static_cast<size_t>(index) + 1);
  const Json logprobs =
      CompletionLogprobs(tokenizer_, {echo.prompt, {}}, offsets_[static_cast<size_t>(index)]);
  return Chunk(index, echo.echo, &logprobs, "");
}

std::string ChunkWriter::Token(int index, const TokenEvent& token) {
  if (!logprobs_) {
    if (token.text.empty()) return "";
    if (reasoning_) return ChatChunks(index, Split(index, token.text, false), nullptr);
    return Chunk(index, token.text, nullptr, "");
  }
  const std::span one(&token, 1);
  const auto at = static_cast<size_t>(index);
  if (offsets_.size() <= at) offsets_.resize(at + 1);
  const Json logprobs = chat_ ? ChatLogprobs(tokenizer_, one)
                              : CompletionLogprobs(tokenizer_, {{}, one}, offsets_[at]);
  if (reasoning_) return ChatChunks(index, Split(index, token.text, false), &logprobs);
  return Chunk(index, token.text, &logprobs, "");
}

std::string ChunkWriter::Finish(int index, const FinishEvent& finish) {
  const std::string_view reason = FinishReasonName(finish.reason);
  if (!chat_) return Chunk(index, finish.text, nullptr, reason);
  return ChatChunks(index, Split(index, finish.text, true), nullptr) +
         Chunk(index, "", nullptr, reason);
}

std::string ChunkWriter::End(const TokenCounts& counts) const {
  std::string out;
  if (usage_) out = head_ + "],\"usage\":" + DumpJson(UsageJson(counts, true)) + "}\n\n";
  return out + "data: [DONE]\n\n";
}

std::string ErrorChunk(const ApiError& error) {
  return "data: " + DumpJson(ErrorBody(error)) + "\n\ndata: [DONE]\n\n";
}

}  // namespace nibble::server
