// nibble pull, list and rm.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/generate.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/session.h"
#include "fetch/store.h"
#include "platform/cpu.h"

namespace nibble::cli {
namespace {

struct PullFlags {
  std::string name;
  PullOptions options;
  bool list = false;
};

// What could be pulled, and whether it fits: the weights, and as much again for the KV cache and
// buffers of a long context, but at most 2 GiB.
Status ListNamed(const GlobalFlags& flags) {
  const CpuTopology machine = ReadTopology();
  Json models = Json::array();
  for (const NamedModel& model : NamedModels()) {
    const uint64_t needed = model.bytes + std::min<uint64_t>(model.bytes, uint64_t{2} << 30);
    const bool fits = needed <= machine.memory_available;
    if (flags.json) {
      models.push_back({{"name", model.name},
                        {"description", model.description},
                        {"bytes", model.bytes},
                        {"fits", fits}});
    } else {
      fmt::print("{:<16} {:>9}  {}{}\n", model.name, FormatBytes(static_cast<double>(model.bytes)),
                 model.description, fits ? "" : "  (does not fit this machine's memory now)");
    }
  }
  if (flags.json) {
    PrintJsonLine(Json{{"models", models}});
  } else if (!flags.quiet) {
    fmt::print(
        "Any GGUF of Hugging Face: nibble pull org/repo:Q4_K_M; {} of memory are free here.\n",
        FormatBytes(static_cast<double>(machine.memory_available)));
  }
  return {};
}

Status RunPull(const GlobalFlags& flags, PullFlags own) {
  if (own.list) return ListNamed(flags);
  if (own.name.empty()) return BadInput("give a NAME, or --list for the models known by name");
  const InterruptGuard guard;
  Progress progress(own.name, !flags.quiet);
  own.options.progress = [&](uint64_t done, uint64_t total) {
    const double fraction = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0;
    const std::string of = total > 0 ? " of " + FormatBytes(static_cast<double>(total)) : "";
    progress.Update(fraction, FormatBytes(static_cast<double>(done)) + of);
    return !InterruptGuard::Take();
  };
  own.options.make_float_copy = FloatCopyMaker(flags, [] { return !InterruptGuard::Take(); });
  NIBBLE_TRY(const PullResult result, Pull(own.name, own.options));
  if (flags.json) {
    PrintJsonLine(Json{{"path", result.path.string()},
                       {"bytes", result.bytes},
                       {"sha256", result.sha256},
                       {"seconds", result.seconds}});
  } else if (!flags.quiet) {
    fmt::print("{} ({}, {:.1f} s)\n", result.path.string(),
               FormatBytes(static_cast<double>(result.bytes)), result.seconds);
  }
  return {};
}

Status RunList(const GlobalFlags& flags) {
  const std::vector<StoredModel> models = ListModels();
  if (flags.json) {
    Json list = Json::array();
    for (const StoredModel& model : models) {
      list.push_back({{"name", model.name},
                      {"path", model.path.string()},
                      {"bytes", model.bytes},
                      {"origin", model.origin}});
    }
    PrintJsonLine(Json{{"models", list}});
    return {};
  }
  for (const StoredModel& model : models) {
    if (flags.quiet) {
      fmt::print("{}\n", model.name);
    } else {
      fmt::print("{:<48} {:>9}  {:<12} {}\n", model.name,
                 FormatBytes(static_cast<double>(model.bytes)), model.origin, model.path.string());
    }
  }
  return {};
}

}  // namespace

void AddPullCommand(const CommandContext& context) {
  CLI::App* command = context.app.add_subcommand(
      "pull", "Fetches a model by name, Hugging Face repository or URL; resumes");
  auto own = std::make_shared<PullFlags>();
  command->add_option("NAME", own->name, "smollm2-135m, org/repo:Q4_K_M, or a URL");
  command->add_option("--to", own->options.to, "Folder in place of nibble's own store");
  command->add_option("--revision", own->options.revision, "Branch, tag or commit of a repository")
      ->capture_default_str();
  command->add_flag("--list", own->list, "The models known by name, and whether they fit here");
  command->footer(
      "HF_ENDPOINT and HF_TOKEN are used for Hugging Face repositories.\n"
      "Examples:\n"
      "  nibble pull smollm2-135m\n"
      "  nibble pull bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M\n");
  const GlobalFlags& flags = context.flags;
  std::function<Status()>& action = context.action;
  command->callback(
      [own, &flags, &action] { action = [own, &flags] { return RunPull(flags, *own); }; });
}

void AddListCommand(const CommandContext& context) {
  CLI::App* command =
      context.app.add_subcommand("list", "Models on disk, those in other tools' caches included");
  command->footer("Example:\n  nibble list\n");
  const GlobalFlags& flags = context.flags;
  std::function<Status()>& action = context.action;
  command->callback([&flags, &action] { action = [&flags] { return RunList(flags); }; });
}

void AddRemoveCommand(const CommandContext& context) {
  CLI::App* command = context.app.add_subcommand("rm", "Deletes a model from nibble's own store");
  auto name = std::make_shared<std::string>();
  command->add_option("NAME", *name, "As `nibble list` prints it")->required();
  command->footer("Example:\n  nibble rm smollm2-135m\n");
  const GlobalFlags& flags = context.flags;
  std::function<Status()>& action = context.action;
  command->callback([name, &flags, &action] {
    action = [name, &flags]() -> Status {
      NIBBLE_RETURN_IF_ERROR(RemoveModel(*name));
      if (!flags.quiet && !flags.json) fmt::print("{} removed\n", *name);
      if (flags.json) PrintJsonLine(Json{{"removed", *name}});
      return {};
    };
  });
}

}  // namespace nibble::cli
