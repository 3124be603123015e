#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <vector>

#include "cli/commands.h"
#include "cli/generate.h"
#include "cli/number_range.h"
#include "cli/output.h"
#include "cli/output_paths.h"
#include "cli/simulate_output.h"
#include "cli/simulate_setup.h"
#include "cost/simulation_files.h"
#include "cost/step_check.h"
#include "platform/clock.h"

namespace nibble::cli {
namespace {

TraceOptions TraceOptionsOf(const SimulateFlags& own) {
  TraceOptions options{.limit = static_cast<size_t>(own.limit)};
  for (size_t i = 0; i < std::size(kTraceFormatNames); ++i) {
    if (own.format == kTraceFormatNames[i]) options.format = static_cast<TraceFormat>(i);
  }
  return options;
}

Result<std::ifstream> OpenText(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  // A trace is read twice, which a pipe cannot be.
  if (fs::exists(path, error) && !fs::is_regular_file(path, error)) {
    return BadInput("{}: expected a file", path);
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) return BadInput("{}: cannot be opened: {}", path, std::strerror(errno));
  return in;
}

Result<ArrivalOptions> ArrivalsOf(const GlobalFlags& flags, const SimulateFlags& own) {
  ArrivalOptions options{.rate = own.rate, .cv = own.cv, .seed = flags.seed.value_or(0)};
  if (own.arrivals == "poisson") options.process = ArrivalProcess::kPoisson;
  if (own.arrivals == "gamma") options.process = ArrivalProcess::kGamma;
  const bool searches = own.slo_ttft_ms > 0 || own.slo_tpot_ms > 0;
  if (options.process != ArrivalProcess::kFile && own.rate <= 0 && !searches) {
    return BadInput("--arrivals {}: expected a --rate", own.arrivals);
  }
  return options;
}

// Everybody who watches a simulation.
class Watchers : public SimulationObserver {
 public:
  void Add(SimulationObserver* observer) { all_.push_back(observer); }
  void OnStep(const SimulatedStep& step) override {
    for (SimulationObserver* one : all_) one->OnStep(step);
  }
  void OnRequest(const SimulatedRequest& request) override {
    for (SimulationObserver* one : all_) one->OnRequest(request);
  }
  bool empty() const { return all_.empty(); }

 private:
  std::vector<SimulationObserver*> all_;
};

class Simulating {
 public:
  Simulating(const GlobalFlags& flags, const SimulateFlags& own)
      : flags_(flags), own_(own), trace_(TraceOptionsOf(own)) {}

  Status Run() {
    const NamedPath outputs[] = {{"--events", own_.events}, {"--requests", own_.requests}};
    const NamedPath inputs[] = {{"--trace", own_.trace}, {"--check-steps", own_.check_steps}};
    NIBBLE_RETURN_IF_ERROR(CheckOutputPaths(outputs, inputs));
    NIBBLE_TRY(std::ifstream in, OpenText(own_.trace));
    auto survey = SurveyTrace(in, trace_);
    if (!survey) return Within(own_.trace, survey.error());
    survey_ = *std::move(survey);
    NIBBLE_TRY(arrivals_, ArrivalsOf(flags_, own_));
    NIBBLE_TRY(setup_, MakeSimulateSetup(flags_, own_, survey_));
    setup_.options.seed = flags_.seed.value_or(0);
    const InterruptGuard guard;
    if (own_.slo_ttft_ms > 0 || own_.slo_tpot_ms > 0) return Search();
    return One();
  }

 private:
  Result<SimulationResult> Simulated(double rate, SimulationObserver* observer,
                                     const std::string& what) {
    NIBBLE_TRY(std::ifstream in, OpenText(own_.trace));
    ArrivalOptions arrivals = arrivals_;
    arrivals.rate = rate;
    arrivals.as_queued = !own_.check_steps.empty();
    NIBBLE_TRY(const auto stream, TraceStream::Open(in, trace_, survey_, arrivals));
    Progress progress(what, !flags_.quiet);
    SimulatorOptions options = setup_.options;
    options.by_step = !own_.check_steps.empty();
    options.progress = [&](int64_t done) {
      const auto all = static_cast<double>(survey_.requests);
      progress.Update(static_cast<double>(done) / all,
                      fmt::format("{} of {} requests", done, survey_.requests));
      return !InterruptGuard::Take();
    };
    const double begin = MonotonicSeconds();
    auto result = Simulate(*stream, *setup_.timer, options, observer);
    if (!result) {
      const bool input = result.error().kind == ErrorKind::kBadInput;
      return input ? Within(own_.trace, std::move(result).error())
                   : std::unexpected(std::move(result).error());
    }
    result->report.wall_s = MonotonicSeconds() - begin;
    result->report.source = setup_.source;
    return result;
  }

  Status One() {
    std::optional<EventFile> events;
    std::optional<RequestFile> requests;
    std::optional<StepCheck> check;
    std::ifstream steps;
    Watchers watchers;
    if (!own_.events.empty()) {
      NIBBLE_TRY(EventFile file, EventFile::Create(own_.events));
      watchers.Add(&events.emplace(std::move(file)));
    }
    if (!own_.requests.empty()) {
      NIBBLE_TRY(RequestFile file, RequestFile::Create(own_.requests));
      watchers.Add(&requests.emplace(std::move(file)));
    }
    if (!own_.check_steps.empty()) {
      NIBBLE_TRY(steps, OpenText(own_.check_steps));
      watchers.Add(&check.emplace(steps));
    }
    NIBBLE_TRY(const SimulationResult result,
               Simulated(own_.rate, watchers.empty() ? nullptr : &watchers, "simulate"));
    if (events) NIBBLE_RETURN_IF_ERROR(events->Finish());
    if (requests) NIBBLE_RETURN_IF_ERROR(requests->Finish());
    if (result.never_fit > 0 && !flags_.quiet) {
      fmt::print(stderr, "{}: {} requests can never run and are refused; {}\n", own_.trace,
                 result.never_fit, result.first_unfit);
    }
    if (check) {
      const Status read = check->Finish();
      if (!read) return Within(own_.check_steps, read.error());
    }
    Print(result, check ? &*check : nullptr);
    if (check && check->different() > 0) {
      return Fail(ErrorKind::kIo, "{}: {} of the steps differ; {}", own_.check_steps,
                  check->different(), check->first_difference());
    }
    return {};
  }

  void Print(const SimulationResult& result, const StepCheck* check) const {
    if (flags_.json) {
      Json out = SimulationJson(setup_, result);
      if (check != nullptr) {
        out["steps_compared"] = check->compared();
        out["steps_different"] = check->different();
      }
      PrintJsonLine(out);
      return;
    }
    fmt::print("{}", SimulationText(setup_, result));
    if (check != nullptr) {
      fmt::print("{} steps compared with {}: {} differ\n", check->compared(), own_.check_steps,
                 check->different());
    }
  }

  Status Search() {
    const LatencyLimits limits{.ttft_s = own_.slo_ttft_ms / 1e3, .tpot_s = own_.slo_tpot_ms / 1e3};
    const auto simulate = [&](double rate) {
      return Simulated(rate, nullptr, fmt::format("{:.4g} requests/s", rate));
    };
    const double start = own_.rate > 0 ? own_.rate : 1;
    NIBBLE_TRY(const Capacity capacity, FindCapacity(simulate, limits, start));
    if (flags_.json) {
      PrintJsonLine(CapacityJson(setup_, capacity, limits));
    } else {
      fmt::print("{}", CapacityText(setup_, capacity, limits));
    }
    return {};
  }

  const GlobalFlags& flags_;
  const SimulateFlags& own_;
  TraceOptions trace_;
  TraceSurvey survey_;
  ArrivalOptions arrivals_;
  SimulateSetup setup_;
};

void AddServerFlags(CLI::App& command, SimulateFlags& own) {
  const std::string group = "The server";
  const auto text = [&](const char* name, std::string& value, const char* type, const char* help) {
    return command.add_option(name, value, help)->type_name(type)->group(group);
  };
  text("--model", own.model, "NAME|MODEL|SPEC.json",
       "As in nibble plan; default: the server whose log the trace is, at its own prices");
  text("--device", own.device, "NAME|SPEC.json|here", "As in nibble plan")->capture_default_str();
  text("--devices", own.devices, "N", "Devices that share the model by tensor parallelism")
      ->capture_default_str();
  text("--weights", own.weights, "F", "Format of weights; default: bf16, or the file's own");
  command.add_flag("--nominal", own.nominal, "Count a number of b bits as b/8 bytes")->group(group);
  command.add_flag("--true", own.true_bytes, "Count scales and pages too")->group(group);
  text("--policy", own.policy, "NAME",
       "nibble; vllm: first come first served, no budget of time; static: a bus of --max-seqs "
       "leaves when it is full and takes nobody until all are done")
      ->check(CLI::IsMember({"nibble", "vllm", "static"}))
      ->capture_default_str();
  const auto count = [&](const char* name, std::optional<int>& value, int most, const char* help) {
    command.add_option(name, value, help)->check(CLI::Range(1, most))->group(group);
  };
  count("--max-seqs", own.max_sequences, 65536,
        "Most sequences at the same time; default: 256, of a log the server's, here 16");
  count("--max-batch-tokens", own.max_batch_tokens, 65536,
        "Most tokens of one step; default: 2048, of a log the server's, here 512");
  count("--max-queue", own.max_queue, 1 << 24,
        "Most sequences that wait; more are refused; default: 1024, of a log the server's");
  command
      .add_option("--max-step-ms", own.max_step_ms,
                  "Most milliseconds of one step; 0: no limit; default: twice what the answers in "
                  "it alone take")
      ->check(NumberFrom(0.0, 3.6e6))
      ->group(group);
  text("--prefix-cache", own.prefix_cache, "on|off", "Compute what prompts share once; default: on")
      ->check(CLI::IsMember({"on", "off"}));
}

void AddTraceFlags(CLI::App& command, SimulateFlags& own) {
  command.add_option("--trace", own.trace, "Requests: lengths and times of arrival")
      ->type_name("FILE")
      ->required();
  command.add_option("--format", own.format, "Of that file; default: told by its first line")
      ->check(CLI::IsMember(
          std::vector<std::string>(std::begin(kTraceFormatNames), std::end(kTraceFormatNames))));
  command
      .add_option("--rate", own.rate,
                  "Requests per second: the file's times are stretched; default: the file's, or "
                  "all at once")
      ->check(NumberFrom(1e-6, 1e6));
  command
      .add_option("--arrivals", own.arrivals,
                  "file; poisson or gamma: random times of --rate in place of the file's")
      ->check(CLI::IsMember({"file", "poisson", "gamma"}))
      ->capture_default_str();
  command
      .add_option("--cv", own.cv,
                  "gamma: standard deviation of the times between arrivals over their mean; above "
                  "1 they come in bursts")
      ->check(NumberFrom(0.01, 100))
      ->capture_default_str();
  command
      .add_option("--limit", own.limit, "Most requests, from the file's beginning; default: all")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
}

void AddResultFlags(CLI::App& command, SimulateFlags& own) {
  const std::string group = "Results";
  command
      .add_option("--slo-ttft-ms", own.slo_ttft_ms,
                  "Search the highest rate at which 99 of 100 first tokens come so soon")
      ->check(NumberFrom(1e-3, 1e9))
      ->group(group);
  command
      .add_option("--slo-tpot-ms", own.slo_tpot_ms,
                  "And at which 99 of 100 answers take at most so long per token")
      ->check(NumberFrom(1e-3, 1e9))
      ->group(group);
  command.add_option("--events", own.events, "Write steps and requests as a Chrome trace")
      ->type_name("OUT.json")
      ->group(group);
  command.add_option("--requests", own.requests, "Write a line of JSON for each request")
      ->type_name("OUT.jsonl")
      ->group(group);
  command
      .add_option("--check-steps", own.check_steps,
                  "A server's --trace-steps file beside its --trace-log: follow the order in which "
                  "it queued requests, and compare every step's plan")
      ->type_name("FILE")
      ->group(group);
}

}  // namespace

void AddSimulateCommand(const CommandContext& context) {
  CLI::App* command = context.app.add_subcommand(
      "simulate", "Replays a trace of requests through the scheduler on a virtual clock");
  auto own = std::make_shared<SimulateFlags>();
  AddTraceFlags(*command, *own);
  AddServerFlags(*command, *own);
  AddResultFlags(*command, *own);
  command->footer(
      "The scheduler and the page pool are those that serve; how long steps take is predicted.\n"
      "docs/simulate.md says how, and how well.\n"
      "Examples:\n"
      "  nibble simulate --trace azure.csv --model llama-3-70b --device h100 --devices 8\n"
      "  nibble simulate --trace azure.csv --model llama-3-8b --device h100 --slo-ttft-ms 500 "
      "--slo-tpot-ms 50\n"
      "  nibble simulate --trace log.jsonl --check-steps steps.jsonl\n"
      "  nibble simulate --trace azure.csv --model llama-3-8b --device h100 --rate 20 "
      "--arrivals gamma --cv 3 --events out.json\n");
  const GlobalFlags& flags = context.flags;
  std::function<Status()>& action = context.action;
  command->callback(
      [own, &flags, &action] { action = [own, &flags] { return Simulating(flags, *own).Run(); }; });
}

}  // namespace nibble::cli
