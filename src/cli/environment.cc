#include "cli/environment.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace nibble::cli {
namespace {

std::string VariableName(const CLI::Option& option) {
  std::string name = "NIBBLE_" + option.get_lnames().front();
  for (char& c : name) {
    c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

bool HasVariable(const CLI::Option& option) {
  return !option.get_lnames().empty() && option.get_lnames().front() != "help" &&
         option.get_lnames().front() != "version";
}

// Whether a flag is among the arguments: --name, --name=value, -n, -nvalue.
bool IsGiven(const CLI::Option& option, const std::vector<std::string>& arguments) {
  return std::ranges::any_of(arguments, [&](const std::string& argument) {
    for (const std::string& name : option.get_lnames()) {
      if (argument == "--" + name || argument.starts_with("--" + name + "=")) return true;
    }
    return argument.size() > 1 && argument[0] == '-' && argument[1] != '-' &&
           std::ranges::any_of(option.get_snames(),
                               [&](const std::string& name) { return argument[1] == name[0]; });
  });
}

void AddFrom(const CLI::App& app, const std::vector<std::string>& given,
             std::vector<std::string>& arguments) {
  for (const CLI::Option* option : app.get_options()) {
    if (!HasVariable(*option) || IsGiven(*option, given)) continue;
    const char* value = std::getenv(VariableName(*option).c_str());
    if (value == nullptr) continue;
    arguments.push_back("--" + option->get_lnames().front() + "=" + value);
  }
}

}  // namespace

const CLI::App* FindCommand(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_name() == name) return command;
  }
  return nullptr;
}

void NameEnvironment(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (HasVariable(*option)) {
      option->description(option->get_description() + " [" + VariableName(*option) + "]");
    }
  }
}

std::vector<std::string> WithEnvironment(const CLI::App& app,
                                         const std::vector<std::string>& arguments) {
  std::vector<std::string> all = arguments;
  AddFrom(app, arguments, all);
  for (const std::string& argument : arguments) {
    const CLI::App* command = FindCommand(app, argument);
    if (command == nullptr) continue;
    AddFrom(*command, arguments, all);
    break;
  }
  return all;
}

}  // namespace nibble::cli
