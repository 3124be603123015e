#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>

#include "cli/commands.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/prompt.h"
#include "fetch/store.h"
#include "tokenizer/jinja.h"
#include "tokenizer/load.h"

namespace nibble::cli {
namespace {

struct TokenizeFlags {
  std::string model;
  std::string tokenizer;
  std::string prompt;
  std::string file;
  std::string chat;
  std::string template_file;
  std::string context_file;
  bool has_prompt = false;
  bool no_bos = false;
  bool no_special = false;
  bool decode = false;
  bool add_generation_prompt = false;
};

// Ids in any of the usual spellings: "1,2,3", "1 2 3", "[1, 2, 3]".
Result<std::vector<TokenId>> ParseIds(const std::string& text) {
  std::vector<TokenId> ids;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    if (std::string_view(", \t\r\n[]").find(*at) != std::string_view::npos) {
      ++at;
      continue;
    }
    int32_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc()) {
      return BadInput("ids: expected integers, found '{}' at byte {}",
                      std::string(at, std::min<ptrdiff_t>(end - at, 16)), at - text.data());
    }
    ids.emplace_back(value);
    at = next;
  }
  return ids;
}

void Print(const GlobalFlags& flags, const std::vector<TokenId>& ids,
           const std::vector<std::string>& pieces, const std::string& text, bool show_text) {
  if (flags.json) {
    Json out;
    out["ids"] = Json::array();
    for (const TokenId id : ids) out["ids"].push_back(id.value());
    out["pieces"] = pieces;
    out["text"] = text;
    PrintJsonLine(out);
    return;
  }
  if (show_text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    if (text.empty() || text.back() != '\n') std::fputc('\n', stdout);
    return;
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    fmt::print("{:>8}  {}\n", ids[i].value(), QuoteJson(pieces[i]));
  }
}

Status RenderTemplate(const GlobalFlags& flags, const TokenizeFlags& own) {
  if (own.context_file.empty()) return BadInput("--template: --context FILE is missing");
  NIBBLE_TRY(const std::string source, ReadTextFile(own.template_file, size_t{16} << 20));
  NIBBLE_TRY(const std::string json, ReadTextFile(own.context_file, size_t{256} << 20));
  auto parsed = JinjaTemplate::Parse(source);
  if (!parsed) return Within(own.template_file, parsed.error());
  auto context = JinjaValue::FromJson(json);
  if (!context) return Within(own.context_file, context.error());
  auto text = parsed->Render(*context);
  if (!text) return Within(own.template_file, text.error());
  Print(flags, {}, {}, *text, true);
  return {};
}

Result<std::string> RenderChat(const Tokenizer& tokenizer, const TokenizeFlags& own) {
  std::string source(tokenizer.chat_template());
  if (!own.template_file.empty()) {
    NIBBLE_TRY(source, ReadTextFile(own.template_file, size_t{16} << 20));
  }
  if (source.empty()) {
    return BadInput("{}: has no chat template; give one with --template FILE", own.model);
  }
  NIBBLE_TRY(const std::string json, ReadTextFile(own.chat, size_t{256} << 20));
  NIBBLE_TRY(const ChatTemplate chat, MakeChatTemplate(source, tokenizer));
  ChatOptions options;
  options.add_generation_prompt = own.add_generation_prompt;
  auto text = chat.Apply(json, options);
  if (!text) return Within(own.chat, text.error());
  return text;
}

Status RunTokenize(const GlobalFlags& flags, const TokenizeFlags& own) {
  if (own.model.empty() && own.tokenizer.empty()) {
    if (!own.template_file.empty()) return RenderTemplate(flags, own);
    return BadInput("give a MODEL, or --tokenizer FILE, or --template FILE --context FILE");
  }
  std::filesystem::path path = own.tokenizer;
  if (path.empty()) {
    NIBBLE_TRY(path, ResolveModel(own.model));
  }
  NIBBLE_TRY(const Tokenizer tokenizer, LoadTokenizer(path));

  std::string text = own.prompt;
  if (!own.chat.empty()) {
    NIBBLE_TRY(text, RenderChat(tokenizer, own));
  } else if (!own.has_prompt) {
    NIBBLE_TRY(text, ReadTextFile(own.file.empty() ? "-" : own.file));
  }

  NIBBLE_RETURN_IF_ERROR(CheckUtf8("the text", text));
  std::vector<TokenId> ids;
  if (own.decode) {
    NIBBLE_TRY(ids, ParseIds(text));
    for (const TokenId id : ids) {
      if (id.value() < 0 || id.value() >= tokenizer.vocab_size()) {
        return BadInput("id {} is not in the vocabulary (0 … {})", id.value(),
                        tokenizer.vocab_size() - 1);
      }
    }
    text = tokenizer.Decode(ids);
  } else {
    // A chat template writes the beginning-of-text mark itself.
    const EncodeOptions options{.add_special = !own.no_bos && own.chat.empty(),
                                .parse_special = !own.no_special};
    NIBBLE_TRY(ids, tokenizer.Encode(text, options));
  }
  std::vector<std::string> pieces;
  for (const TokenId id : ids) pieces.emplace_back(tokenizer.Bytes(id));
  Print(flags, ids, pieces, text, own.decode);
  return {};
}

}  // namespace

void AddTokenizeCommand(const CommandContext& context) {
  CLI::App* command =
      context.app.add_subcommand("tokenize", "Text to token ids and back; renders templates");
  auto own = std::make_shared<TokenizeFlags>();
  command->add_option("MODEL", own->model, "Model file, folder or name");
  command->add_option(
      "--tokenizer", own->tokenizer,
      "tokenizer.json, tokenizer.model, *.tiktoken or vocab.json beside merges.txt");
  CLI::Option* prompt = command->add_option("-p,--prompt", own->prompt, "The text");
  command->add_option("-f,--file", own->file, "File with the text; - is standard input")
      ->excludes(prompt);
  command->add_flag("--no-bos", own->no_bos, "No tokens around the text");
  command->add_flag("--no-special", own->no_special,
                    "Texts of special tokens are plain text, not those tokens");
  command->add_flag("--decode", own->decode, "The text holds ids; print what they stand for");
  command->add_option("--chat", own->chat,
                      "JSON file of messages, or {messages, tools, …}: rendered by the template");
  command->add_flag("--add-generation-prompt", own->add_generation_prompt,
                    "With --chat: end where the assistant's answer begins");
  command->add_option("--template", own->template_file, "Jinja file in place of the model's");
  command->add_option("--context", own->context_file,
                      "JSON file of variables: with --template and no MODEL, render it");
  command->footer(
      "Examples:\n"
      "  nibble tokenize smollm2-135m -p \"Hello\"\n"
      "  nibble tokenize smollm2-135m --decode -p \"28120 284\"\n"
      "  nibble tokenize model.gguf --chat messages.json --add-generation-prompt\n"
      "  nibble tokenize --template chat.jinja --context variables.json\n");
  const GlobalFlags& flags = context.flags;
  std::function<Status()>& action = context.action;
  command->callback([own, prompt, &flags, &action] {
    own->has_prompt = prompt->count() > 0;
    action = [own, &flags] { return RunTokenize(flags, *own); };
  });
}

}  // namespace nibble::cli
