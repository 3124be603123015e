#include "cli/prompt.h"

#include "cli/output.h"
#include "engine/engine.h"
#include "tokenizer/tokenizer.h"

namespace nibble::cli {

Result<ChatTemplate> MakeChatTemplate(std::string_view source, const Tokenizer& tokenizer) {
  SpecialTokens tokens;
  const auto add = [&](const char* name, std::optional<TokenId> id) {
    if (id) tokens.emplace_back(name, tokenizer.Piece(*id));
  };
  add("bos_token", tokenizer.bos());
  add("eos_token", tokenizer.eos());
  add("unk_token", tokenizer.unknown());
  add("pad_token", tokenizer.pad());
  return ChatTemplate::Create(source, std::move(tokens));
}

Result<std::optional<ChatTemplate>> LoadChatTemplate(const Engine& engine,
                                                     const std::string& file) {
  std::string source(engine.tokenizer().chat_template());
  if (!file.empty()) {
    NIBBLE_TRY(source, ReadTextFile(file, size_t{16} << 20));
  }
  if (source.empty()) return std::nullopt;
  auto chat = MakeChatTemplate(source, engine.tokenizer());
  if (!chat && !file.empty()) return Within(file, chat.error());
  if (!chat) return std::unexpected(chat.error());
  return *std::move(chat);
}

Result<std::vector<TokenId>> EncodeChat(const Engine& engine, const ChatTemplate& chat,
                                        const std::vector<ChatMessage>& messages) {
  NIBBLE_TRY(const std::string text, chat.Apply(messages));
  return engine.tokenizer().Encode(text, {.add_special = false, .parse_special = true});
}

}  // namespace nibble::cli
