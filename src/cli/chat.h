#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/request.h"
#include "tokenizer/chat_template.h"

namespace nibble {
class Engine;
}

namespace nibble::cli {

struct ChatSettings {
  std::string system;
  SamplingParams sampling;
  std::vector<std::string> stop;
  int max_tokens = -1;
  bool show_stats = false;
  std::shared_ptr<grammar::Constraint> constraint = nullptr;  // of every answer
};

// A conversation on the terminal: line editing with history, /help, /system, /reset, /stats, /exit.
// Without a chat template every line is completed as text. When the conversation outgrows the
// context its oldest turns are dropped and a line says so. Ctrl-C stops an answer; at the prompt a
// second one in a row leaves.
Status ChatInTerminal(Engine& engine, const std::optional<ChatTemplate>& chat,
                      const ChatSettings& settings);

}  // namespace nibble::cli
