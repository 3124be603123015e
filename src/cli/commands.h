#pragma once

#include <functional>

#include "base/result.h"
#include "cli/globals.h"

namespace nibble::cli {

// Each command registers its flags and sets `action`, which runs after parsing.
struct CommandContext {
  CLI::App& app;
  const GlobalFlags& flags;
  std::function<Status()>& action;
};

void AddRunCommand(const CommandContext& context);
void AddServeCommand(const CommandContext& context);
void AddQuantizeCommand(const CommandContext& context);
void AddEvalCommand(const CommandContext& context);
void AddBenchCommand(const CommandContext& context);
void AddPlanCommand(const CommandContext& context);
void AddAdviseCommand(const CommandContext& context);
void AddCalibrateCommand(const CommandContext& context);
void AddSimulateCommand(const CommandContext& context);
void AddInspectCommand(const CommandContext& context);
void AddTokenizeCommand(const CommandContext& context);
void AddPullCommand(const CommandContext& context);
void AddListCommand(const CommandContext& context);
void AddRemoveCommand(const CommandContext& context);
void AddCompletionCommand(const CommandContext& context);

// Everything main() does. Returns the exit code: 0 done, 1 failed, 2 bad use or bad input.
int Main(int argc, char** argv);

}  // namespace nibble::cli
