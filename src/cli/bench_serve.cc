#include "cli/bench_serve.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "advise/interference.h"
#include "advise/replay.h"
#include "cli/bench_serve_output.h"
#include "cli/generate.h"
#include "cli/number_range.h"
#include "cli/output.h"
#include "cli/session.h"
#include "model/config/model_file.h"

namespace nibble::cli {
namespace {

constexpr int kSharedSuffix = 64;  // most tokens of a request's own behind a shared prefix
constexpr int kSharedAnswer = 16;
constexpr int kSharedRequests = 1000;

struct Mode {
  const char* name;
  Batching batching;
};
constexpr Mode kModes[] = {{"continuous", Batching::kContinuous}, {"static", Batching::kStatic}};

Result<Trace> MakeTrace(const GlobalFlags& flags, const BenchServeFlags& own) {
  if (own.shared_prefix > 0) {
    if (own.shared_prefix % kTraceBlockTokens != 0) {
      return BadInput("--shared-prefix is {}, expected a multiple of {}", own.shared_prefix,
                      kTraceBlockTokens);
    }
    return SharedPrefixTrace(own.limit > 0 ? own.limit : kSharedRequests, own.shared_prefix,
                             kSharedSuffix, kSharedAnswer, flags.seed.value_or(0));
  }
  TraceOptions options{.limit = static_cast<size_t>(own.limit)};
  for (size_t i = 0; i < std::size(kTraceFormatNames); ++i) {
    if (own.format == kTraceFormatNames[i]) options.format = static_cast<TraceFormat>(i);
  }
  NIBBLE_TRY(const std::string text, ReadTextFile(own.trace));
  auto trace = ReadTrace(text, options);
  if (!trace) return Within(own.trace, std::move(trace).error());
  if (own.rate > 0) SetRate(*trace, own.rate, flags.seed.value_or(0));
  return trace;
}

Result<std::unique_ptr<Engine>> MakeEngine(const GlobalFlags& flags, const BenchServeFlags& own,
                                           const ModelFile& file, Batching batching) {
  NIBBLE_TRY(EngineOptions options, MakeEngineOptions(flags));
  ApplyServingFlags(own.serving, options);
  options.max_queue = 1 << 20;  // a trace is finite: everybody may wait
  options.batching = batching;
  if (batching == Batching::kStatic) options.step_budget = false;  // all prompts first, as a bus
  return Engine::Create(file, options);
}

Status ServeTrace(const GlobalFlags& flags, const BenchServeFlags& own, const ModelFile& file,
                  ServePrinter& printer) {
  NIBBLE_TRY(const Trace trace, MakeTrace(flags, own));
  ReplayOptions options{.concurrency = own.concurrency, .seed = flags.seed.value_or(0)};
  // One after another, so that times to the first token hold no waiting.
  if (own.shared_prefix > 0 && own.concurrency == 0) options.concurrency = 1;
  const InterruptGuard guard;
  for (const Mode& mode : kModes) {
    const bool wanted = std::ranges::find(own.batching, mode.name) != own.batching.end();
    if (!wanted || (own.shared_prefix > 0 && mode.batching == Batching::kStatic)) continue;
    NIBBLE_TRY(const auto engine, MakeEngine(flags, own, file, mode.batching));
    Progress progress(mode.name, !flags.quiet);
    options.progress = [&](int done, int total) {
      progress.Update(static_cast<double>(done) / total,
                      fmt::format("{} of {} requests", done, total));
      return !InterruptGuard::Take();
    };
    NIBBLE_TRY(const ReplayResult result, Replay(*engine, trace, options));
    if (own.shared_prefix > 0 && result.report.finished == 0) {
      return BadInput("--shared-prefix: no request of {} tokens and more fits the context of {}",
                      own.shared_prefix, engine->plan().max_context);
    }
    if (own.shared_prefix > 0) {
      printer.SharedPrefix(result, own.shared_prefix);
    } else {
      printer.Replay(mode.name, result.report);
    }
  }
  return {};
}

// With the budget that is asked for, and with none.
Status Interfere(const GlobalFlags& flags, const BenchServeFlags& own, const ModelFile& file,
                 ServePrinter& printer) {
  if (own.answers >= own.serving.max_sequences) {
    return BadInput(
        "--answers: {} and the prompt are {} sequences at the same time, --max-seqs is {}",
        own.answers, own.answers + 1, own.serving.max_sequences);
  }
  const InterruptGuard guard;
  InterferenceOptions options{.prompt = own.interference,
                              .answers = own.answers,
                              .seed = flags.seed.value_or(0),
                              .keep_going = [] { return !InterruptGuard::Take(); }};
  for (const bool budget : {true, false}) {
    BenchServeFlags one = own;
    if (!budget) one.serving.max_step_ms = 0;
    NIBBLE_TRY(const auto engine, MakeEngine(flags, one, file, Batching::kContinuous));
    NIBBLE_TRY(const Interference measured, MeasureInterference(*engine, options));
    printer.Interfere(one.serving.max_step_ms, measured);
  }
  return {};
}

}  // namespace

void AddBenchServeFlags(CLI::App& command, BenchServeFlags& flags) {
  const std::string group = "Serving (a whole engine instead of its decoder)";
  CLI::Option* trace =
      command
          .add_option("--serve-trace", flags.trace,
                      "Ask the requests of this file when they arrive: throughput and latencies")
          ->type_name("FILE")
          ->group(group);
  command.add_option("--format", flags.format, "Of that file; default: told by its first line")
      ->check(CLI::IsMember(
          std::vector<std::string>(std::begin(kTraceFormatNames), std::end(kTraceFormatNames))))
      ->needs(trace)
      ->group(group);
  command
      .add_option("--rate", flags.rate,
                  "Requests per second: the file's times are stretched, or made where it has none; "
                  "default: the file's, or all at once")
      ->check(NumberFrom(1e-6, 1e6))
      ->needs(trace)
      ->group(group);
  CLI::Option* shared =
      command
          .add_option("--shared-prefix", flags.shared_prefix,
                      "Requests that begin with the same N tokens, one after another: time to the "
                      "first token of the first one and of the others")
          ->check(CLI::Range(kTraceBlockTokens, 1 << 20))
          ->type_name("N")
          ->excludes(trace)
          ->group(group);
  command
      .add_option("--interference", flags.interference,
                  "A prompt of N tokens beside answers: time per token alone and meanwhile, with "
                  "and without the budget of --max-step-ms")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N")
      ->excludes(trace)
      ->excludes(shared)
      ->group(group);
  command.add_option("--answers", flags.answers, "Answers beside that prompt")
      ->check(CLI::Range(1, 4095))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--limit", flags.limit,
                  "Most requests, from the file's beginning; default: all, or 1000 of "
                  "--shared-prefix")
      ->check(CLI::Range(1, 1 << 20))
      ->group(group);
  command
      .add_option("--concurrency", flags.concurrency,
                  "Ask so many requests at a time, whatever their times; default: by time of "
                  "arrival, with --shared-prefix 1")
      ->check(CLI::Range(1, 1 << 20))
      ->group(group);
  command
      .add_option("--batching", flags.batching,
                  "One or both; static: a bus of --max-seqs waits until it is full and takes "
                  "nobody until all are done; default: both")
      ->delimiter(',')
      ->type_name("NAME,...")
      ->check(CLI::IsMember({"continuous", "static"}))
      ->group(group);
  AddServingFlags(command, flags.serving, group);
}

Status RunBenchServe(const GlobalFlags& flags, const BenchServeFlags& own, const ModelFile& file,
                     const std::string& model, const std::string& output) {
  ServePrinter printer(output, model);
  if (own.interference > 0) {
    NIBBLE_RETURN_IF_ERROR(Interfere(flags, own, file, printer));
  } else {
    NIBBLE_RETURN_IF_ERROR(ServeTrace(flags, own, file, printer));
  }
  printer.Finish();
  return {};
}

}  // namespace nibble::cli
