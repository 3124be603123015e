#include "cli/chat.h"

#include <editline/readline.h>
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "cli/generate.h"
#include "cli/output.h"
#include "cli/prompt.h"
#include "engine/engine.h"
#include "tokenizer/tokenizer.h"

namespace nibble::cli {
namespace {

constexpr const char* kHelp =
    "  /help           this list\n"
    "  /system TEXT    set the system message (empty: none) and start over\n"
    "  /reset          forget the conversation\n"
    "  /stats          speed and bytes per token of every answer, on or off\n"
    "  /exit           leave (Ctrl-D too)\n"
    "  Ctrl-C          stop the answer; at the prompt, twice: leave\n";

class Chat {
 public:
  Chat(Engine& engine, const std::optional<ChatTemplate>& chat, const ChatSettings& settings)
      : engine_(engine), chat_(chat), settings_(settings), system_(settings.system) {}

  Status Loop() {
    fmt::print("{}. /help lists commands.\n",
               chat_ ? "Chat" : "This model has no chat template: it continues your text");
    const InterruptGuard guard;
    while (true) {
      const std::unique_ptr<char, decltype(&std::free)> line(readline("> "), &std::free);
      if (!line) {
        std::fputc('\n', stdout);
        if (!InterruptGuard::Take()) return {};  // end of input
        if (!StayAfterInterrupt()) return {};
        continue;
      }
      if (InterruptGuard::Take()) {
        if (!StayAfterInterrupt()) return {};
        continue;
      }
      interrupted_ = false;
      const std::string text = line.get();
      if (text.empty()) continue;
      add_history(text.c_str());
      if (text[0] == '/') {
        if (!Command(text)) return {};
        continue;
      }
      if (const Status status = Answer(text); !status) {
        fmt::print(stderr, "{}\n", status.error().message);
      }
    }
  }

 private:
  // Ctrl-C at the prompt: the second in a row leaves; the one that stopped an answer counts.
  bool StayAfterInterrupt() {
    if (interrupted_) return false;
    interrupted_ = true;
    fmt::print("(Ctrl-C again to leave)\n");
    return true;
  }

  // False: leave.
  bool Command(const std::string& text) {
    const size_t space = text.find(' ');
    const std::string name = text.substr(0, space);
    const std::string rest = space == std::string::npos ? "" : text.substr(space + 1);
    if (name == "/exit" || name == "/quit" || name == "/bye") return false;
    if (name == "/reset") {
      turns_.clear();
      fmt::print("The conversation is forgotten.\n");
    } else if (name == "/system") {
      system_ = rest;
      turns_.clear();
      fmt::print("{}\n", rest.empty() ? "No system message." : "System message set.");
    } else if (name == "/stats") {
      settings_.show_stats = !settings_.show_stats;
      fmt::print("Statistics {}.\n", settings_.show_stats ? "on" : "off");
    } else {
      if (name != "/help") fmt::print("There is no command {}.\n", name);
      fmt::print("{}", kHelp);
    }
    return true;
  }

  std::vector<ChatMessage> Messages() const {
    std::vector<ChatMessage> messages;
    if (!system_.empty()) messages.push_back({"system", system_});
    messages.insert(messages.end(), turns_.begin(), turns_.end());
    return messages;
  }

  // The prompt for the conversation so far, with room left for an answer: the oldest question and
  // its answer are dropped until it fits.
  Result<std::vector<TokenId>> Prompt(const std::string& text) {
    if (!chat_) return engine_.tokenizer().Encode(text);
    const int context = engine_.plan().max_context;
    const int room = std::min(context / 4, settings_.max_tokens > 0 ? settings_.max_tokens : 256);
    int dropped = 0;
    while (true) {
      NIBBLE_TRY(std::vector<TokenId> ids, EncodeChat(engine_, *chat_, Messages()));
      if (std::ssize(ids) + room <= context || turns_.size() < 3) {
        if (dropped > 0 && std::ssize(ids) < context) {
          fmt::print(stderr, "(context of {} tokens is full: dropped the oldest {} turn{})\n",
                     context, dropped, dropped == 1 ? "" : "s");
        }
        return ids;
      }
      turns_.erase(turns_.begin(), turns_.begin() + 2);
      ++dropped;
    }
  }

  Status Answer(const std::string& text) {
    // A question that is refused leaves the conversation as it was, dropped turns included.
    const std::vector<ChatMessage> before = turns_;
    turns_.push_back({"user", text});
    const auto give_up = [&](const Error& error) -> Status {
      turns_ = before;
      return std::unexpected(error);
    };
    Request request;
    auto prompt = Prompt(text);
    if (!prompt) return give_up(prompt.error());
    request.prompt = *std::move(prompt);
    request.sampling = settings_.sampling;
    request.stop = settings_.stop;
    request.max_tokens = settings_.max_tokens;
    request.constraint = settings_.constraint;
    const auto answer = Generate(engine_, std::move(request), [](std::string_view piece) {
      std::fwrite(piece.data(), 1, piece.size(), stdout);
      std::fflush(stdout);
    });
    if (!answer) return give_up(answer.error());
    interrupted_ = answer->finish.reason == FinishReason::kCancelled;
    const bool cut = answer->finish.reason == FinishReason::kLength;
    fmt::print("{}\n", interrupted_ ? " (stopped; Ctrl-C again to leave)" : "");
    if (cut && settings_.max_tokens < 0) fmt::print(stderr, "(cut: the context is full)\n");
    turns_.push_back({"assistant", answer->text});
    settings_.sampling.seed += 1;  // the same question asked again may get another answer
    if (settings_.show_stats) {
      const RunStats stats = MakeRunStats(engine_, answer->finish.usage);
      fmt::print(stderr, "{}\n", DescribeSpeed(stats, 0));
    }
    return {};
  }

  Engine& engine_;
  const std::optional<ChatTemplate>& chat_;
  ChatSettings settings_;
  std::string system_;
  std::vector<ChatMessage> turns_;
  bool interrupted_ = false;  // the last thing was a Ctrl-C
};

}  // namespace

Status ChatInTerminal(Engine& engine, const std::optional<ChatTemplate>& chat,
                      const ChatSettings& settings) {
  return Chat(engine, chat, settings).Loop();
}

}  // namespace nibble::cli
