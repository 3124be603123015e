#include "server/openai_response.h"

#include <algorithm>
#include <span>

#include "base/split_mix.h"
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
                          TextOffset& offset, Json& out) {
  out["tokens"].push_back(tokenizer.Bytes(token.id));
  out["text_offset"].push_back(offset.characters());
  offset.Add(token.id);
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

Json CompletionLogprobs(const Tokenizer& tokenizer, const TokenSpans& spans, TextOffset& offset) {
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

// The model's own id of a call, or one that the same answer gives again: nine letters and digits,
// for Mistral's templates refuse what is longer when the tool's result comes back.
std::string CallId(const ToolCallSplitter::Delta& delta, const std::string& id) {
  if (!delta.id.empty()) return delta.id;
  constexpr std::string_view kSigns =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  uint64_t bits = SplitMix(static_cast<uint64_t>(delta.index));
  for (const char c : id) bits = SplitMix(bits ^ static_cast<unsigned char>(c));
  std::string out;
  for (int i = 0; i < 9; ++i) {
    out += kSigns[bits % kSigns.size()];
    bits /= kSigns.size();
  }
  return out;
}

// Calls of tools out of the content, which is null when nothing else is there.
void SplitCalls(const grammar::ToolSyntax& syntax, const std::string& id, Json& message) {
  ToolCallSplitter splitter(syntax);
  ToolCallSplitter::Parts parts = splitter.Add(message["content"].get_ref<const std::string&>());
  parts.text += splitter.End().text;
  Json calls = Json::array();
  for (const ToolCallSplitter::Delta& delta : parts.deltas) {
    if (!delta.name.empty()) {
      calls.push_back({{"id", CallId(delta, id)},
                       {"type", "function"},
                       {"function", {{"name", delta.name}, {"arguments", ""}}}});
    }
    Json& arguments = calls.back()["function"]["arguments"];
    arguments = arguments.get<std::string>() + delta.arguments;
  }
  message["content"] = parts.text;
  if (calls.empty()) return;
  if (parts.text.empty()) message["content"] = nullptr;
  message["tool_calls"] = std::move(calls);
}

Json ChatMessageJson(const OpenAiRequest& request, const std::string& id, const std::string& text) {
  Json out = {{"role", "assistant"}, {"content", text}};
  if (request.reasoning) {
    ReasoningSplitter splitter(*request.reasoning);
    ReasoningSplitter::Parts parts = splitter.Add(text);
    ReasoningSplitter::Parts rest = splitter.End();
    parts.reasoning += rest.reasoning;
    out["content"] = parts.text + rest.text;
    if (!parts.reasoning.empty()) out["reasoning_content"] = std::move(parts.reasoning);
  }
  if (request.tools) SplitCalls(*request.tools, id, out);
  return out;
}

// An answer that ends by itself behind a call.
std::string_view ReasonOf(const FinishEvent& finish, bool calls) {
  if (calls && finish.reason == FinishReason::kStop) return "tool_calls";
  return FinishReasonName(finish.reason);
}

Json Choice(const OpenAiRequest& request, const std::string& id, const Tokenizer& tokenizer,
            const PromptAnswers& prompt, size_t choice) {
  const Answer& answer = prompt.answers[choice];
  const bool chat = request.endpoint == Endpoint::kChatCompletions;
  Json out;
  out["index"] = nullptr;  // the caller's
  if (chat) {
    out["message"] = ChatMessageJson(request, id, answer.text);
  } else {
    out["text"] = prompt.echo + answer.text;
  }
  TextOffset offset(tokenizer, !prompt.echo.empty());
  if (request.request.logprobs < 0) {
    out["logprobs"] = nullptr;
  } else {
    out["logprobs"] = chat ? ChatLogprobs(tokenizer, answer.tokens)
                           : CompletionLogprobs(tokenizer, {prompt.prompt, answer.tokens}, offset);
  }
  const bool calls = chat && out["message"].contains("tool_calls");
  out["finish_reason"] = ReasonOf(answer.finish, calls);
  return out;
}

}  // namespace

void TextOffset::Add(TokenId id) {
  for (const char byte : text_.Add(id)) {
    characters_ += (static_cast<unsigned char>(byte) & 0xC0) != 0x80 ? 1 : 0;
  }
}

void TokenCounts::Add(int choice, const Usage& usage) {
  generated += usage.generated_tokens;
  queue_s += usage.queue_s;
  prefill_s += usage.prefill_s;
  decode_s += usage.decode_s;
  decode_steps += usage.decode_steps;
  drafted += usage.drafted_tokens;
  accepted += usage.accepted_tokens;
  drafts += usage.drafts;
  if (accepted_at.size() < usage.accepted_at.size()) accepted_at.resize(usage.accepted_at.size());
  for (size_t i = 0; i < usage.accepted_at.size(); ++i) accepted_at[i] += usage.accepted_at[i];
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
  if (counts.drafts > 0) {
    out["nibble"]["drafts"] = counts.drafts;
    out["nibble"]["accepted_at"] = counts.accepted_at;
  }
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
      Json choice = Choice(request, fmt::format("{}_{}", name.id, index), tokenizer, prompt, i);
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
      reasoning_(request.reasoning),
      tools_(request.tools),
      id_(name.id) {
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

std::string ChunkWriter::TextChunks(int index, const ReasoningSplitter::Parts& parts, bool end,
                                    const Json* logprobs) {
  if (!tools_) return ChatChunks(index, parts, logprobs);
  while (tool_splitters_.size() <= static_cast<size_t>(index))
    tool_splitters_.emplace_back(*tools_);
  ToolCallSplitter& splitter = tool_splitters_[static_cast<size_t>(index)];
  ToolCallSplitter::Parts split = splitter.Add(parts.text);
  if (end) split.text += splitter.End().text;
  std::string out = ChatChunks(index, {.reasoning = parts.reasoning, .text = split.text}, logprobs);
  for (const ToolCallSplitter::Delta& delta : split.deltas) {
    Json call = {{"index", delta.index}};
    if (!delta.name.empty()) {
      call["id"] = CallId(delta, fmt::format("{}_{}", id_, index));
      call["type"] = "function";
      call["function"]["name"] = delta.name;
    }
    call["function"]["arguments"] = delta.arguments;
    out += head_ + "{\"index\":" + std::to_string(index) + ",\"delta\":{\"tool_calls\":[" +
           DumpJson(call) + "]},\"logprobs\":null,\"finish_reason\":null}" + tail_;
  }
  return out;
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

TextOffset& ChunkWriter::OffsetOf(int index, bool echo) {
  const auto at = static_cast<size_t>(index);
  if (offsets_.size() <= at) offsets_.resize(at + 1);
  if (!offsets_[at]) offsets_[at].emplace(tokenizer_, echo);
  return *offsets_[at];
}

std::string ChunkWriter::First(int index, const PromptAnswers& echo) {
  if (chat_) {
    return head_ + "{\"index\":" + std::to_string(index) +
           R"(,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null})" +
           tail_;
  }
  if (echo.echo.empty()) return "";
  if (!logprobs_) return Chunk(index, echo.echo, nullptr, "");
  const Json logprobs = CompletionLogprobs(tokenizer_, {echo.prompt, {}}, OffsetOf(index, true));
  return Chunk(index, echo.echo, &logprobs, "");
}

std::string ChunkWriter::Token(int index, const TokenEvent& token) {
  if (!logprobs_) {
    if (token.text.empty()) return "";
    if (reasoning_ || tools_) {
      return TextChunks(index, Split(index, token.text, false), false, nullptr);
    }
    return Chunk(index, token.text, nullptr, "");
  }
  const std::span one(&token, 1);
  const Json logprobs = chat_ ? ChatLogprobs(tokenizer_, one)
                              : CompletionLogprobs(tokenizer_, {{}, one}, OffsetOf(index, false));
  if (reasoning_ || tools_) {
    return TextChunks(index, Split(index, token.text, false), false, &logprobs);
  }
  return Chunk(index, token.text, &logprobs, "");
}

std::string ChunkWriter::Finish(int index, const FinishEvent& finish) {
  if (!chat_) return Chunk(index, finish.text, nullptr, FinishReasonName(finish.reason));
  const std::string rest = TextChunks(index, Split(index, finish.text, true), true, nullptr);
  const auto at = static_cast<size_t>(index);
  const bool calls = at < tool_splitters_.size() && tool_splitters_[at].calls() > 0;
  return rest + Chunk(index, "", nullptr, ReasonOf(finish, calls));
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
