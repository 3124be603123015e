#include "cli/config_file.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cli/environment.h"

namespace nibble::cli {
namespace {

const CLI::Option* FindOption(const CLI::App& app, const std::string& name) {
  const CLI::Option* option = app.get_option_no_throw("--" + name);
  if (option == nullptr && name.size() == 1) option = app.get_option_no_throw("-" + name);
  return option;
}

class ConfigReader : public CLI::ConfigTOML {
 public:
  explicit ConfigReader(const CLI::App& app) : app_(app) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    std::vector<CLI::ConfigItem> first;
    std::vector<CLI::ConfigItem> rest;
    for (CLI::ConfigItem& item : CLI::ConfigTOML::from_config(input)) {
      const CLI::App* command =
          item.parents.size() == 1 ? FindCommand(app_, item.parents[0]) : nullptr;
      const CLI::Option* common = FindOption(app_, item.name);
      const bool is_common =
          command != nullptr && common != nullptr && FindOption(*command, item.name) == nullptr;
      if (is_common || item.parents.empty()) JoinList(common, item);
      if (!is_common) {
        rest.push_back(std::move(item));
      } else if (app_.got_subcommand(command)) {
        item.parents.clear();
        first.push_back(std::move(item));  // whichever comes first counts
      }
    }
    std::ranges::move(rest, std::back_inserter(first));
    return first;
  }

 private:
  static void JoinList(const CLI::Option* option, CLI::ConfigItem& item) {
    if (option == nullptr || option->get_expected_max() != 1 || item.inputs.size() < 2) return;
    item.inputs = {CLI::detail::join(item.inputs, ",")};
  }

  const CLI::App& app_;
};

}  // namespace

std::shared_ptr<CLI::Config> MakeConfigReader(const CLI::App& app) {
  return std::make_shared<ConfigReader>(app);
}

}  // namespace nibble::cli
