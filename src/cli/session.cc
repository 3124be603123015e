#include "cli/session.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/output.h"
#include "fetch/store.h"
#include "model/config/model_file.h"
#include "platform/clock.h"
#include "platform/cpu.h"
#include "platform/thread_pool.h"
#include "quantize/float_copy.h"

namespace nibble::cli {

Result<std::filesystem::path> FindModel(const GlobalFlags& flags, const std::string& model,
                                        bool pull) {
  auto path = ResolveModel(model);
  if (path || !pull || !CanPull(model)) return path;
  fmt::print(stderr, "{} is not on disk: fetching it\n", model);
  Progress progress(model, !flags.quiet);
  PullOptions options;
  options.progress = [&](uint64_t done, uint64_t total) {
    const double fraction = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0;
    progress.Update(fraction, FormatBytes(static_cast<double>(done)));
    return true;
  };
  options.make_float_copy = FloatCopyMaker(flags, [] { return true; });
  NIBBLE_TRY(const PullResult result, Pull(model, options));
  return result.path;
}

std::function<Status(const std::filesystem::path&, const std::filesystem::path&)> FloatCopyMaker(
    const GlobalFlags& flags, std::function<bool()> keep_running) {
  return [&flags, keep_running = std::move(keep_running)](
             const std::filesystem::path& model, const std::filesystem::path& copy) -> Status {
    NIBBLE_TRY(const ModelFile file, ModelFile::Open(model));
    ThreadPool pool(flags.threads > 0 ? flags.threads : ReadTopology().threads);
    Progress progress("float copy", !flags.quiet);
    FloatCopyOptions options;
    options.progress = [&](double done, std::string_view tensor) {
      progress.Update(done, tensor);
      return keep_running();
    };
    return WriteFloatCopy(file, copy, options, pool);
  };
}

Result<EngineOptions> MakeEngineOptions(const GlobalFlags& flags) {
  EngineOptions engine_options;
  NIBBLE_TRY(engine_options.act, ParseAct(flags.act));
  NIBBLE_TRY(engine_options.kv, ParseKvFormats(flags));
  engine_options.threads = flags.threads;
  engine_options.nodes = NodesToUse(flags);
  NIBBLE_TRY(const std::optional<size_t> kv_memory, KvMemory(flags));
  if (kv_memory) engine_options.kv_memory = *kv_memory;
  engine_options.max_context = flags.context;
  return engine_options;
}

Result<Session> OpenSession(const GlobalFlags& flags, const std::string& model,
                            const SessionOptions& options) {
  NIBBLE_TRY(EngineOptions engine_options, MakeEngineOptions(flags));
  Session session;
  NIBBLE_TRY(session.path, FindModel(flags, model, options.pull));
  NIBBLE_TRY(const ModelFile file, ModelFile::Open(session.path));
  if (flags.context == 0) {
    engine_options.max_context = std::min(options.max_context, file.config().context_length);
  }
  engine_options.min_contexts = options.min_sequences;
  engine_options.step_budget = false;
  if (options.serving != nullptr) ApplyServingFlags(*options.serving, engine_options);
  NIBBLE_TRY(const MadeSpeculation made, MakeSpeculation(flags, options.speculation, file));
  engine_options.speculation = made.speculation;
  if (options.tap != nullptr) {
    engine_options.tap = options.tap;
    engine_options.prefix_cache = false;
  }
  NIBBLE_TRY(const EnginePlan plan, Engine::Plan(file, engine_options));
  if (!flags.quiet) fmt::print(stderr, "{}\n", plan.Describe());
  for (const std::string& group : plan.kv_groups) {
    if (flags.verbose) fmt::print(stderr, "{}\n", group);
  }

  const double started = MonotonicSeconds();
  NIBBLE_TRY(session.engine, Engine::Create(file, engine_options));
  session.load_s = MonotonicSeconds() - started;
  if (flags.verbose) {
    fmt::print(stderr, "loaded in {:.2f} s; {} threads\n", session.load_s,
               session.engine->threads());
  }
  return session;
}

}  // namespace nibble::cli
