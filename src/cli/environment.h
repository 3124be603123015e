#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace nibble::cli {

// The command of a name; null when there is none.
const CLI::App* FindCommand(const CLI::App& app, const std::string& name);

// Names NIBBLE_<FLAG> in the help of every flag of a command (not of its parsing: two commands may
// have flags of one name and different kinds).
void NameEnvironment(CLI::App& app);

// The arguments with what NIBBLE_<FLAG> says of flags of the chosen command, and of the program,
// that are not among them. So the order is: command line, environment, --config file, default.
std::vector<std::string> WithEnvironment(const CLI::App& app,
                                         const std::vector<std::string>& arguments);

}  // namespace nibble::cli
