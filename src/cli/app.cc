#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <system_error>

#include "cli/commands.h"
#include "cli/config_file.h"
#include "cli/environment.h"
#include "cli/foreign_flags.h"
#include "cli/output.h"
#include "platform/cpu.h"

namespace nibble::cli {
namespace {

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

// The first argument, when it is no flag and no command.
std::string UnknownCommand(const CLI::App& app, const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments[0].starts_with("-")) return "";
  return FindCommand(app, arguments[0]) == nullptr ? arguments[0] : "";
}

// Messages quote names from files, which may hold anything: control characters, which a terminal
// would obey, are shown as \xNN.
void Complain(const std::string& message) {
  std::string text;
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n') || byte == 0x7f) {
      text += fmt::format("\\x{:02x}", byte);
    } else {
      text += c;
    }
  }
  std::fprintf(stderr, "nibble: %s\n", text.c_str());
}

int ExitCode(const Error& error) {
  return error.kind == ErrorKind::kBadInput || error.kind == ErrorKind::kNoRoom ? 2 : 1;
}

// fmt::print names no file.
std::string Describe(const std::system_error& error) {
  const std::string_view what = error.what();
  if (!what.starts_with("cannot write to file")) return std::string(what);
  return "standard output: " + error.code().message();
}

std::string OutOfMemory() {
  return fmt::format(
      "out of memory: this process was refused more while {} are free on the machine; look at "
      "ulimit -v, or ask for less (a shorter -c or -n, a smaller -b, a smaller model)",
      FormatBytes(static_cast<double>(ReadTopology().memory_available)));
}

// Runs the command; what it printed counts only when it has arrived.
int RunAction(const std::function<Status()>& action) {
  try {
    if (const Status status = action(); !status) {
      std::fflush(stdout);
      Complain(status.error().message);
      return ExitCode(status.error());
    }
    FlushOutput();
    if (std::ferror(stdout) == 0) return 0;
    Complain("standard output: a write failed");
    return 1;
  } catch (const std::system_error& error) {
    // EPIPE: whoever read our output has gone (`nibble … | head`); nobody is left to be told.
    if (error.code() != std::errc::broken_pipe) Complain(Describe(error));
    return 1;
  } catch (const std::bad_alloc&) {
    Complain(OutOfMemory());
    return 2;
  } catch (const std::exception& error) {
    Complain(std::string("unexpected failure: ") + error.what());
    return 1;
  }
}

}  // namespace

int Main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on files' sizes is told as a full disk is
  // Line editing needs to know that the terminal speaks UTF-8; numbers stay as in C.
  if (std::setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX == 1) {
    std::setlocale(LC_CTYPE, "C.UTF-8");
  }
  CLI::App app{"nibble: runs language models on the CPU and moves fewer bytes per token."};
  app.name("nibble");
  app.set_version_flag("--version", std::string("nibble ") + NIBBLE_VERSION);
  app.set_help_flag("-h,--help", "This text");
  app.set_config("--config", "",
                 "TOML file with flags by their long names; [run] for one command's")
      ->type_name("FILE");
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.config_formatter(MakeConfigReader(app));
  app.require_subcommand(1);
  app.fallthrough();
  app.footer(
      "Examples:\n"
      "  nibble run smollm2-135m -p \"Why is the sky blue?\"\n"
      "  nibble serve smollm2-135m\n"
      "  nibble inspect model.gguf --tensors\n"
      "  nibble eval model.gguf --text wiki.test.raw\n"
      "Every flag can be given as NIBBLE_<FLAG> in the environment.");

  GlobalFlags flags;
  std::function<Status()> action;
  AddGlobalFlags(app, flags);
  const CommandContext context{app, flags, action};
  AddRunCommand(context);
  AddServeCommand(context);
  AddQuantizeCommand(context);
  AddEvalCommand(context);
  AddBenchCommand(context);
  AddPlanCommand(context);
  AddCalibrateCommand(context);
  AddSimulateCommand(context);
  AddAdviseCommand(context);
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

  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (const std::string unknown = UnknownCommand(app, arguments); !unknown.empty()) {
    Complain("there is no command '" + unknown + "'; nibble --help lists them");
    return 2;
  }
  if (!arguments.empty() && arguments[0] == "serve") {
    Translated ours = TranslateForeignFlags(arguments);
    for (const std::string& note : ours.notes) fmt::print(stderr, "nibble: {}\n", note);
    arguments = std::move(ours.arguments);
  }
  arguments = WithEnvironment(app, arguments);
  std::ranges::reverse(arguments);  // as CLI11 wants them
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return RunAction(action);
}

}  // namespace nibble::cli
