#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "tokenizer/chat_template.h"

namespace nibble {
class Engine;
class Tokenizer;
}  // namespace nibble

namespace nibble::cli {

// A template with the special tokens that the tokenizer has (bos_token, eos_token, …).
Result<ChatTemplate> MakeChatTemplate(std::string_view source, const Tokenizer& tokenizer);

// The chat template of the model, or of a file where one is given; nothing when there is none.
Result<std::optional<ChatTemplate>> LoadChatTemplate(const Engine& engine, const std::string& file);

// Messages to ids, up to where the assistant's answer begins.
Result<std::vector<TokenId>> EncodeChat(const Engine& engine, const ChatTemplate& chat,
                                        const std::vector<ChatMessage>& messages);

}  // namespace nibble::cli
