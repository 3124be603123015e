#include <CLI/CLI.hpp>
#include <cctype>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <system_error>

#include "cli/commands.h"

namespace nibble::cli {
namespace {

// --kv-memory can be given as NIBBLE_KV_MEMORY.
void NameEnvironment(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_lnames().empty()) continue;
    std::string name = "NIBBLE_" + option->get_lnames().front();
    for (char& c : name) {
      c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
    if (name != "NIBBLE_HELP" && name != "NIBBLE_CONFIG" && name != "NIBBLE_VERSION") {
      option->envname(name);
    }
  }
}

// The common flags belong to the program, so that they may stand before or behind the command and
// at the top of a TOML file; each command's help lists them too.
std::string CommonFlagsHelp(const CLI::App& app) {
  std::string text = "Common flags:\n";
  CLI::Formatter formatter;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group() == "Common flags") {
      text += formatter.make_option(option, false);
    }
  }
  return text;
}

int ExitCode(const Error& error) {
  return error.kind == ErrorKind::kBadInput || error.kind == ErrorKind::kNoRoom ? 2 : 1;
}

}  // namespace

int Main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  CLI::App app{"nibble: runs language models on the CPU and moves fewer bytes per token."};
  app.name("nibble");
  app.set_version_flag("--version", std::string("nibble ") + NIBBLE_VERSION);
  app.set_help_flag("-h,--help", "This text");
  app.set_config("--config", "",
                 "TOML file with flags by their long names; [run] for one command's")
      ->type_name("FILE");
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.require_subcommand(1);
  app.fallthrough();
  app.footer(
      "Examples:\n"
      "  nibble run smollm2-135m -p \"Why is the sky blue?\"\n"
      "  nibble inspect model.gguf --tensors\n"
      "  nibble eval model.gguf --text wiki.test.raw\n"
      "Every flag can be given as NIBBLE_<FLAG> in the environment.");

  GlobalFlags flags;
  std::function<Status()> action;
  AddGlobalFlags(app, flags);
  const CommandContext context{app, flags, action};
  AddRunCommand(context);
  AddEvalCommand(context);
  AddBenchCommand(context);
  AddInspectCommand(context);
  AddTokenizeCommand(context);
  AddPullCommand(context);
  AddListCommand(context);
  AddRemoveCommand(context);
  AddCompletionCommand(context);

  NameEnvironment(app);
  for (CLI::App* command : app.get_subcommands({})) {
    NameEnvironment(*command);
    command->footer(command->get_footer() + "\n" + CommonFlagsHelp(app));
  }

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    const Status status = action();
    if (status) return 0;
    std::fflush(stdout);
    std::fprintf(stderr, "nibble: %s\n", status.error().message.c_str());
    return ExitCode(status.error());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "nibble: out of memory\n");
    return 2;
  } catch (const std::system_error& error) {
    // Whoever read our output has gone (`nibble … | head`): nobody is left to be told.
    if (error.code() == std::errc::broken_pipe) return 1;
    std::fprintf(stderr, "nibble: unexpected failure: %s\n", error.what());
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nibble: unexpected failure: %s\n", error.what());
    return 1;
  }
}

}  // namespace nibble::cli
