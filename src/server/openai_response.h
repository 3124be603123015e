#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/event_stream.h"
#include "server/json_text.h"
#include "server/openai_request.h"
#include "server/reasoning.h"
#include "server/tool_calls.h"

namespace nibble::server {

// What a response is named by. `created` stays 0 where the same request is to give the same bytes.
struct ResponseName {
  std::string id;     // of the completion, behind "chatcmpl-" or "cmpl-"
  std::string model;  // as the caller knows it
  int64_t created = 0;
  bool live = false;  // usage tells what came from the prefix cache
};

// One prompt's part of a response.
struct PromptAnswers {
  std::vector<Answer> answers;     // one per choice
  std::string echo;                // the prompt's text, where it is part of the answers'
  std::vector<TokenEvent> prompt;  // with echo and logprobs: its tokens, the first without any
};

// The body of a response to /v1/chat/completions or /v1/completions, all prompts' choices in order.
Json OpenAiResponse(const OpenAiRequest& request, const ResponseName& name,
                    const Tokenizer& tokenizer, std::vector<PromptAnswers> prompts);

// {prompt_tokens, completion_tokens, total_tokens} of the choices' usages; `live` adds
// prompt_tokens_details and what the answer took.
struct TokenCounts {
  int prompt = 0;  // each prompt once
  int cached = 0;
  int generated = 0;
  // Sums over choices, of a live response's usage.nibble.
  double queue_s = 0;
  double prefill_s = 0;
  double decode_s = 0;
  int decode_steps = 0;
  int drafted = 0;
  int accepted = 0;
  int drafts = 0;
  std::vector<int> accepted_at;  // of these, in how many the first, second … guess was right
  double weight_bytes = 0;
  double kv_bytes = 0;
  void Add(int choice, const Usage& usage);
};
Json UsageJson(const TokenCounts& counts, bool live);

// Where tokens begin in the text of a completion, in characters: those that are complete before it.
class TextOffset {
 public:
  // echo: the text begins with its prompt.
  TextOffset(const Tokenizer& tokenizer, bool echo) : text_(tokenizer, {.at_start = echo}) {}
  size_t characters() const { return characters_; }
  void Add(TokenId id);

 private:
  StreamingDetokenizer text_;
  size_t characters_ = 0;
};

// The chunks of a streamed response, each a whole server-sent event.
class ChunkWriter {
 public:
  ChunkWriter(const OpenAiRequest& request, const ResponseName& name, const Tokenizer& tokenizer);

  // The first chunk of a choice: the role, or the prompt that is echoed (empty: none is needed).
  std::string First(int index, const PromptAnswers& echo);
  // A token with its text; empty when there is nothing to say.
  std::string Token(int index, const TokenEvent& token);
  // The rest of the text and the reason.
  std::string Finish(int index, const FinishEvent& finish);
  // The usage, when it is asked for, and [DONE].
  std::string End(const TokenCounts& counts) const;

 private:
  // The chunks of an answer's text: calls of tools have chunks of their own.
  std::string TextChunks(int index, const ReasoningSplitter::Parts& parts, bool end,
                         const Json* logprobs);
  std::string Chunk(int index, std::string_view text, const Json* logprobs,
                    std::string_view reason) const;
  // A chat's: its reasoning and its text have a chunk each.
  std::string ChatChunks(int index, const ReasoningSplitter::Parts& parts,
                         const Json* logprobs) const;
  TextOffset& OffsetOf(int index, bool echo);
  ReasoningSplitter::Parts Split(int index, std::string_view text, bool end);

  bool chat_;
  bool logprobs_;
  bool usage_;
  std::string head_;  // up to the choice's index
  std::string tail_;  // behind the choices
  const Tokenizer& tokenizer_;
  std::vector<std::optional<TextOffset>> offsets_;  // per choice, of completions
  std::optional<ReasoningMarks> reasoning_;
  std::vector<ReasoningSplitter> splitters_;  // per choice, where there is reasoning
  std::optional<grammar::ToolSyntax> tools_;
  std::vector<ToolCallSplitter> tool_splitters_;  // per choice, where there are tools
  std::string id_;
};

// "data: {…}" of an error in the middle of a stream, and [DONE].
std::string ErrorChunk(const ApiError& error);

}  // namespace nibble::server
