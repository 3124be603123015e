#include "engine/engine.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "engine/cpu_executor.h"
#include "engine/engine_core.h"
#include "engine/engine_thread.h"
#include "engine/fit_step_price.h"
#include "engine/model_tokenizer.h"
#include "engine/plan.h"
#include "kernels/kernel_table.h"
#include "kv/storage/kv_storage.h"
#include "model/config/model_file.h"
#include "platform/clock.h"
#include "platform/cpu.h"
#include "platform/random_bits.h"
#include "platform/thread_pool.h"
#include "tokenizer/tokenizer.h"

namespace nibble {
namespace {

// Everything that is decided before anything is loaded.
struct Prepared {
  std::unique_ptr<ThreadPool> pool;
  const KernelTable* kernels = nullptr;
  LoadOptions load;
  PlannedPools pools;
};

Result<Prepared> Prepare(const ModelFile& file, const EngineOptions& options) {
  NIBBLE_RETURN_IF_ERROR(CheckOptions(options));
  NIBBLE_TRY(const Isa isa, ChooseIsa());
  const CpuTopology topology = ReadTopology();
  const int threads = options.threads > 0 ? options.threads : topology.threads;
  Prepared prepared;
  prepared.kernels = &KernelsFor(isa);
  prepared.load = {
      .act = options.act, .max_rows = options.max_rows, .max_context = options.max_context};
  try {
    prepared.pool = std::make_unique<ThreadPool>(threads, options.nodes);
  } catch (const std::system_error& error) {
    return Fail(ErrorKind::kNoRoom, "{} threads cannot be started: {}", threads, error.what());
  }
  PlanInput input{.config = &file.config(),
                  .model = {},
                  .options = options,
                  .threads = threads,
                  .available = topology.memory_available};
  NIBBLE_TRY(input.model, Decoder::Plan(file, prepared.load, *prepared.pool));
  NIBBLE_TRY(prepared.pools, PlanPools(input));
  return prepared;
}

Status Refuse(const std::filesystem::path& path, const EnginePlan& plan) {
  const std::string advice =
      plan.fitting_context > 0
          ? fmt::format("a context of {} tokens would fit", plan.fitting_context)
          : "no context would fit beside the weights";
  return Fail(ErrorKind::kNoRoom, "{}: does not fit in memory: {}; {}", path.string(),
              plan.Describe(), advice);
}

}  // namespace

// Members in the order of their use of each other; destroyed last to first.
struct Engine::Impl {
  Impl(std::unique_ptr<ThreadPool> pool_in, std::unique_ptr<Decoder> decoder_in,
       Tokenizer tokenizer_in, KvStorage storage_in, EnginePlan plan_in)
      : pool(std::move(pool_in)),
        decoder(std::move(decoder_in)),
        tokenizer(std::move(tokenizer_in)),
        storage(std::move(storage_in)),
        plan(std::move(plan_in)),
        executor(*decoder, storage) {}

  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Decoder> decoder;
  Tokenizer tokenizer;
  KvStorage storage;
  EnginePlan plan;
  CpuExecutor executor;
  std::vector<FormPages> touched_by_fit;  // per group; none without a budget of time
  std::unique_ptr<EngineCore> core;
  std::unique_ptr<EngineThread> thread;
};

Result<EnginePlan> Engine::Plan(const std::filesystem::path& path, const EngineOptions& options) {
  NIBBLE_TRY(const ModelFile file, ModelFile::Open(path));
  return Plan(file, options);
}

Result<EnginePlan> Engine::Plan(const ModelFile& file, const EngineOptions& options) {
  NIBBLE_TRY(Prepared prepared, Prepare(file, options));
  return prepared.pools.plan;
}

Result<std::unique_ptr<Engine>> Engine::Create(const std::filesystem::path& path,
                                               const EngineOptions& options) {
  NIBBLE_TRY(const ModelFile file, ModelFile::Open(path));
  return Create(file, options);
}

Result<std::unique_ptr<Engine>> Engine::Create(const ModelFile& file,
                                               const EngineOptions& options) {
  NIBBLE_TRY(Prepared prepared, Prepare(file, options));
  PlannedPools& pools = prepared.pools;
  if (!pools.plan.Fits()) return std::unexpected(Refuse(file.path(), pools.plan).error());
  NIBBLE_TRY(Tokenizer tokenizer, LoadModelTokenizer(file));
  auto loaded = Decoder::Load(file, prepared.load, *prepared.kernels, *prepared.pool);
  if (!loaded) return Within(file.path().string(), std::move(loaded).error());
  std::unique_ptr<Decoder> decoder = *std::move(loaded);
  pools.plan.model = decoder->plan();  // tighter where a stored output is the embedding again
  NIBBLE_TRY(KvStorage storage,
             KvStorage::Create(pools.groups, pools.OpenPages(), pools.SealedPages()));
  NIBBLE_RETURN_IF_ERROR(storage.Interleave(options.nodes));

  decoder->SetTap(options.tap);

  auto impl = std::make_unique<Impl>(std::move(prepared.pool), std::move(decoder),
                                     std::move(tokenizer), std::move(storage), pools.plan);
  EngineCoreOptions core{.max_context = pools.plan.max_context,
                         .limits = {.max_rows = options.max_rows,
                                    .max_running = options.max_running,
                                    .max_queue = options.max_queue,
                                    .policy = options.policy,
                                    .batching = options.batching,
                                    .max_step_s = options.max_step_s},
                         .pools = pools.pools,
                         .clock = MonotonicSeconds,
                         .observer = options.steps};
  core.pages.prefix_cache = options.prefix_cache;
  core.pages.hash.seed = RandomBits();
  if (options.step_budget) {
    FittedStepPrice fitted = FitStepPrice(impl->executor, {.pools = core.pools,
                                                           .max_rows = options.max_rows,
                                                           .max_context = core.max_context,
                                                           .clock = MonotonicSeconds});
    core.price = std::move(fitted.price);
    impl->touched_by_fit = std::move(fitted.touched);
  }
  impl->core = std::make_unique<EngineCore>(impl->executor, impl->tokenizer, *prepared.kernels,
                                            std::move(core));
  try {
    impl->thread = std::make_unique<EngineThread>(*impl->core);
  } catch (const std::system_error& error) {
    return Fail(ErrorKind::kNoRoom, "the engine's thread cannot be started: {}", error.what());
  }
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
// Sinks may call Cancel until the thread has ended: everything must still be there.
Engine::~Engine() { impl_->thread->Stop(); }

Result<RequestId> Engine::Submit(Request request, std::shared_ptr<EventSink> sink) {
  return impl_->thread->Submit(std::move(request), std::move(sink));
}

void Engine::Cancel(RequestId id) { impl_->thread->Cancel(id); }
void Engine::CloseArrivals() { impl_->thread->CloseArrivals(); }

const Tokenizer& Engine::tokenizer() const { return impl_->tokenizer; }
const ModelConfig& Engine::config() const { return impl_->decoder->config(); }
const EnginePlan& Engine::plan() const { return impl_->plan; }
int Engine::threads() const { return impl_->pool->size(); }
const StepPrice& Engine::step_price() const { return impl_->core->scheduler().price(); }
const std::vector<PoolSpec>& Engine::pools() const { return impl_->core->options().pools; }
size_t Engine::WeightBytesPerStep() const { return impl_->decoder->WeightBytesPerStep(); }
EngineStats Engine::Stats() const {
  EngineStats stats = impl_->thread->Stats();
  for (size_t g = 0; g < stats.kv_pages_touched.size(); ++g) {
    const KvGroup& group = impl_->storage.groups()[g];
    FormPages& touched = stats.kv_pages_touched[g];
    if (!impl_->touched_by_fit.empty()) {  // pools hand out pages in one order
      touched.pages = std::max(touched.pages, impl_->touched_by_fit[g].pages);
      touched.open = std::max(touched.open, impl_->touched_by_fit[g].open);
    }
    stats.kv_touched_bytes += group.two_forms()
                                  ? group.SealedPageBytes() * static_cast<size_t>(touched.pages) +
                                        group.PageBytes() * static_cast<size_t>(touched.open)
                                  : group.PageBytes() * static_cast<size_t>(touched.pages);
  }
  return stats;
}

}  // namespace nibble
