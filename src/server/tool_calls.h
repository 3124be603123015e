#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/tool_syntax.h"
#include "tokenizer/tokenizer.h"

namespace nibble::server {

// How the model behind a chat template writes calls of tools: Hermes and Qwen (<tool_call>),
// Mistral
// ([TOOL_CALLS], with a list, [ARGS], or [CALL_ID] and [ARGS]), Functionary 3.1 (<function=…>)
// and 3.2 (>>>name), DeepSeek R1 and V3.1 (<｜tool▁calls▁begin｜>), Llama 3 (a JSON object).
// Nothing for a template that speaks of tools in another way; a template that does not speak of
// them gets Hermes's way, which ToolsPrompt then tells the model.
std::optional<grammar::ToolSyntax> FindToolSyntax(std::string_view chat_template,
                                                  const Tokenizer& tokenizer);
bool SpeaksOfTools(std::string_view chat_template);
// For templates that do not: what the model is told about its tools.
std::string ToolsPrompt(std::string_view tools_json, const grammar::ToolSyntax& syntax);

// Takes calls out of an answer, piece by piece. What may be the beginning of a call is held back
// until it is known.
class ToolCallSplitter {
 public:
  explicit ToolCallSplitter(grammar::ToolSyntax syntax) : syntax_(std::move(syntax)) {
    if (!syntax_.text_name.empty()) pending_ = syntax_.open;
  }

  struct Delta {
    int index = 0;
    std::string name;       // not empty: a call begins
    std::string id;         // that the model gave it, if it did
    std::string arguments;  // more of its arguments
  };
  struct Parts {
    std::string text;
    std::vector<Delta> deltas;
  };
  Parts Add(std::string_view piece);
  Parts End();  // what was held back
  int calls() const { return index_ + 1; }

 private:
  enum class State { kText, kOpen, kName, kArguments, kBehind, kDone };
  bool Advance(Parts& parts);
  bool TakeText(Parts& parts);
  bool TakeArguments(Parts& parts);
  // Whether `what` is next, may be once more is there, or is not.
  enum class Next { kYes, kMaybe, kNo };
  Next TakeNext(std::string_view what);

  grammar::ToolSyntax syntax_;
  State state_ = State::kText;
  std::string pending_;
  bool begun_ = false;  // something was seen
  int index_ = -1;
  int depth_ = 0;  // of the arguments' braces
  bool in_string_ = false;
  bool escaped_ = false;
};

}  // namespace nibble::server
