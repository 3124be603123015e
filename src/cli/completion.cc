#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cli/commands.h"

namespace nibble::cli {
namespace {

// All long and short flags of a command and of the program, as one word list.
std::string FlagWords(const CLI::App& app, const CLI::App& command) {
  std::string words;
  for (const CLI::App* source : {&command, &app}) {
    for (const CLI::Option* option : source->get_options()) {
      for (const std::string& name : option->get_lnames()) words += " --" + name;
      for (const std::string& name : option->get_snames()) words += " -" + name;
    }
  }
  return words.empty() ? words : words.substr(1);
}

std::string CommandWords(const CLI::App& app) {
  std::string words;
  for (const CLI::App* command : app.get_subcommands({})) {
    words += (words.empty() ? "" : " ") + command->get_name();
  }
  return words;
}

std::string BashScript(const CLI::App& app) {
  std::string script =
      "# bash completion of nibble: source <(nibble completion bash)\n"
      "_nibble() {\n"
      "  local current=\"${COMP_WORDS[COMP_CWORD]}\" command=\"\" word\n"
      "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
      "    case \"$word\" in -*) ;; *) command=\"$word\"; break ;; esac\n"
      "  done\n"
      "  local words=\"\"\n"
      "  case \"$command\" in\n";
  for (const CLI::App* command : app.get_subcommands({})) {
    script +=
        fmt::format("    {}) words=\"{}\" ;;\n", command->get_name(), FlagWords(app, *command));
  }
  script += fmt::format("    *) words=\"{}\" ;;\n", CommandWords(app));
  script +=
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
      "  if [[ -n \"$command\" && \"$current\" != -* ]]; then\n"
      "    COMPREPLY+=($(compgen -f -- \"$current\"))\n"
      "    case \"$command\" in run|serve|eval|bench|plan|inspect|tokenize|rm)\n"
      "      COMPREPLY+=($(compgen -W \"$(nibble list --quiet 2>/dev/null)\" -- \"$current\")) ;;\n"
      "    esac\n"
      "  fi\n"
      "}\n"
      "complete -o filenames -F _nibble nibble\n";
  return script;
}

std::string ZshScript(const CLI::App& app) {
  std::string script =
      "#compdef nibble\n# zsh completion of nibble: source <(nibble completion zsh)\n";
  script += "_nibble() {\n  local -a commands\n  commands=(\n";
  for (const CLI::App* command : app.get_subcommands({})) {
    script += fmt::format("    '{}'\n", command->get_name());
  }
  script +=
      "  )\n"
      "  if (( CURRENT == 2 )); then _describe 'command' commands; return; fi\n"
      "  case \"${words[2]}\" in\n";
  for (const CLI::App* command : app.get_subcommands({})) {
    script +=
        fmt::format("    {}) compadd -- {} ;;\n", command->get_name(), FlagWords(app, *command));
  }
  script += "  esac\n  _files\n}\ncompdef _nibble nibble\n";
  return script;
}

std::string FishScript(const CLI::App& app) {
  std::string script = "# fish completion of nibble: nibble completion fish | source\n";
  for (const CLI::App* command : app.get_subcommands({})) {
    script +=
        fmt::format("complete -c nibble -n __fish_use_subcommand -a {}\n", command->get_name());
    for (const CLI::App* source : std::initializer_list<const CLI::App*>{command, &app}) {
      for (const CLI::Option* option : source->get_options()) {
        for (const std::string& name : option->get_lnames()) {
          script += fmt::format("complete -c nibble -n '__fish_seen_subcommand_from {}' -l {}\n",
                                command->get_name(), name);
        }
      }
    }
  }
  return script;
}

}  // namespace

void AddCompletionCommand(const CommandContext& context) {
  CLI::App* command =
      context.app.add_subcommand("completion", "Prints a completion script for a shell");
  auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->footer("Example:\n  source <(nibble completion bash)\n");
  CLI::App& app = context.app;
  std::function<Status()>& action = context.action;
  command->callback([shell, &app, &action] {
    action = [shell, &app]() -> Status {
      const std::string script = *shell == "bash"  ? BashScript(app)
                                 : *shell == "zsh" ? ZshScript(app)
                                                   : FishScript(app);
      std::fputs(script.c_str(), stdout);
      return {};
    };
  });
}

}  // namespace nibble::cli
