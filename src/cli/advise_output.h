#pragma once

#include <optional>
#include <string>

#include "advise/advice_report.h"
#include "advise/adviser.h"
#include "cli/advise_candidates.h"
#include "cli/json_output.h"

namespace nibble::cli {

// What is printed beside the table.
struct AdviseCommands {
  std::string quantize;  // empty: the model is taken as it is, or it was written already
  std::string serve;
  std::string check;  // gives the printed divergence again; empty: the text is built in
};

// The commands of a row. out: where the model lies or is to lie.
Result<AdviseCommands> CommandsOf(const Adviser& adviser, const AdviceRow& row,
                                  const GlobalFlags& flags, const AdviseFlags& own, AdviseEmit emit,
                                  const std::filesystem::path& out, bool written);

AdviceReport ReportOf(const Adviser& adviser, const AdviseFlags& own);

// cli.md's keys, and more.
Json AdviceJson(const AdviceReport& report, const AdviseCommands& commands,
                const std::optional<std::filesystem::path>& written);

// The table as it changes: on a terminal one that is drawn again in its place, else its stages.
class AdviceScreen {
 public:
  // silent: nothing is drawn.
  AdviceScreen(bool silent, double started);
  void Changed(const AdviceReport& report);
  void Announce(const std::string& what, double seconds);
  // Before anything else is printed.
  void Close();

 private:
  void Draw(const std::string& text);

  bool silent_;
  bool terminal_;
  double started_;
  int lines_ = 0;
  std::string table_;
  bool predicted_shown_ = false;
  bool usable_shown_ = false;
};

}  // namespace nibble::cli
