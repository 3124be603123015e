#include "engine/engine.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "engine/cpu_executor.h"
#include "engine/engine_core.h"
#include "engine/engine_thread.h"
#include "engine/fit_step_price.h"
#include "engine/form_drafter.h"
#include "engine/model_drafter.h"
#include "engine/model_tokenizer.h"
#include "engine/ngram_drafter.h"
#include "engine/plan.h"
#include "engine/same_vocabulary.h"
#include "engine/two_drafters.h"
#include "engine/vocabulary.h"
#include "kernels/kernel_table.h"
#include "kv/storage/kv_storage.h"
#include "kv/storage/pool_sizes.h"
#include "model/config/model_file.h"
#include "platform/clock.h"
#include "platform/cpu.h"
#include "platform/random_bits.h"
#include "platform/thread_pool.h"
#include "tokenizer/tokenizer.h"

namespace nibble {
namespace {

// The longest that CheckOptions allows: speculation needs prices where steps have no limit, too.
constexpr double kNoStepLimit = 3600;

// Everything that is decided before anything is loaded.
struct Prepared {
  std::unique_ptr<ThreadPool> pool;
  const KernelTable* kernels = nullptr;
  LoadOptions load;
  std::optional<ModelFile> draft;
  LoadOptions draft_load;
  PlannedPools pools;
};

// A draft model's context may be shorter: behind it nothing is guessed.
Status PrepareDraft(const EngineOptions& options, Prepared& prepared, PlanInput& input) {
  if (options.speculation.draft.empty()) return {};
  NIBBLE_TRY(prepared.draft, ModelFile::Open(options.speculation.draft));
  const ModelConfig& config = prepared.draft->config();
  prepared.draft_load = prepared.load;
  prepared.draft_load.max_context = std::min(options.max_context, config.context_length);
  input.draft_config = &config;
  NIBBLE_TRY(input.draft, Decoder::Plan(*prepared.draft, prepared.draft_load, *prepared.pool));
  return {};
}

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
  NIBBLE_RETURN_IF_ERROR(PrepareDraft(options, prepared, input));
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

// A draft model with its pages.
struct DraftModel {
  DraftModel(std::unique_ptr<Decoder> decoder_in, KvStorage storage_in)
      : decoder(std::move(decoder_in)),
        storage(std::move(storage_in)),
        executor(*decoder, storage) {}

  std::unique_ptr<Decoder> decoder;
  KvStorage storage;
  CpuExecutor executor;
};

namespace {

Result<std::unique_ptr<DraftModel>> LoadDraft(const Prepared& prepared, ThreadPool& pool,
                                              const Tokenizer& tokenizer,
                                              const EngineOptions& options) {
  const ModelFile& file = *prepared.draft;
  NIBBLE_TRY(const Tokenizer own, LoadModelTokenizer(file));
  if (const Status same = CheckSameVocabulary(tokenizer, own); !same) {
    return Within(file.path().string(), same.error());
  }
  auto loaded = Decoder::Load(file, prepared.draft_load, *prepared.kernels, pool);
  if (!loaded) return Within(file.path().string(), std::move(loaded).error());
  const PlannedPools& pools = prepared.pools;
  NIBBLE_TRY(KvStorage storage,
             KvStorage::Create(pools.draft_groups, OpenPagesOf(pools.draft_pools),
                               SealedPagesOf(pools.draft_pools)));
  NIBBLE_RETURN_IF_ERROR(storage.Interleave(options.nodes));
  return std::make_unique<DraftModel>(*std::move(loaded), std::move(storage));
}

size_t TouchedBytes(const KvGroup& group, const FormPages& touched) {
  return group.two_forms() ? group.SealedPageBytes() * static_cast<size_t>(touched.pages) +
                                 group.PageBytes() * static_cast<size_t>(touched.open)
                           : group.PageBytes() * static_cast<size_t>(touched.pages);
}

void AtLeast(const std::vector<FormPages>& least, std::vector<FormPages>& touched) {
  touched.resize(std::max(touched.size(), least.size()));
  for (size_t g = 0; g < least.size(); ++g) {  // pools hand out pages in one order
    touched[g].pages = std::max(touched[g].pages, least[g].pages);
    touched[g].open = std::max(touched[g].open, least[g].open);
  }
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
  std::once_flag vocabulary_made;
  std::shared_ptr<const grammar::Vocabulary> vocabulary;
  KvStorage storage;
  EnginePlan plan;
  CpuExecutor executor;
  std::vector<FormPages> touched_by_fit;  // per group; none without a budget of time
  std::unique_ptr<DraftModel> draft;
  std::vector<FormPages> draft_touched_by_fit;
  std::unique_ptr<Drafter> drafter;
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
  if (options.step_budget || options.speculation.on()) {
    FittedStepPrice fitted = FitStepPrice(impl->executor, {.pools = core.pools,
                                                           .max_rows = options.max_rows,
                                                           .max_context = core.max_context,
                                                           .clock = MonotonicSeconds,
                                                           .fine = options.speculation.on()});
    core.price = std::move(fitted.price);
    if (!options.step_budget) core.limits.max_step_s = kNoStepLimit;
    impl->touched_by_fit = std::move(fitted.touched);
  }
  if (options.speculation.ngram) impl->drafter = std::make_unique<NgramDrafter>();
  if (prepared.draft) {
    NIBBLE_TRY(impl->draft, LoadDraft(prepared, *impl->pool, impl->tokenizer, options));
    impl->plan.draft = impl->draft->decoder->plan();
    ModelDrafterOptions own{.pools = pools.draft_pools,
                            .max_rows = options.max_rows,
                            .max_context = impl->draft->decoder->max_context(),
                            .target_price = core.price};
    FittedStepPrice fitted = FitStepPrice(impl->draft->executor, {.pools = own.pools,
                                                                  .max_rows = own.max_rows,
                                                                  .max_context = own.max_context,
                                                                  .clock = MonotonicSeconds,
                                                                  .fine = true});
    own.price = std::move(fitted.price);
    impl->draft_touched_by_fit = std::move(fitted.touched);
    auto drafter =
        std::make_unique<ModelDrafter>(impl->draft->executor, *prepared.kernels, std::move(own));
    if (impl->drafter == nullptr) {
      impl->drafter = std::move(drafter);
    } else {
      impl->drafter = std::make_unique<TwoDrafters>(std::move(impl->drafter), std::move(drafter));
    }
  }
  if (options.speculation.forms) {
    auto forms = std::make_unique<FormDrafter>(impl->tokenizer);
    if (impl->drafter == nullptr) {
      impl->drafter = std::move(forms);
    } else {
      impl->drafter = std::make_unique<TwoDrafters>(std::move(forms), std::move(impl->drafter));
    }
  }
  core.drafter = impl->drafter.get();
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

std::shared_ptr<const grammar::Vocabulary> Engine::vocabulary() const {
  std::call_once(impl_->vocabulary_made, [this] {
    impl_->vocabulary = MakeVocabulary(impl_->tokenizer, impl_->executor.vocabulary());
  });
  return impl_->vocabulary;
}
const ModelConfig& Engine::config() const { return impl_->decoder->config(); }
const EnginePlan& Engine::plan() const { return impl_->plan; }
int Engine::threads() const { return impl_->pool->size(); }
const StepPrice& Engine::step_price() const { return impl_->core->scheduler().price(); }
const std::vector<PoolSpec>& Engine::pools() const { return impl_->core->options().pools; }
size_t Engine::WeightBytesPerStep() const { return impl_->decoder->WeightBytesPerStep(); }
EngineStats Engine::Stats() const {
  EngineStats stats = impl_->thread->Stats();
  AtLeast(impl_->touched_by_fit, stats.kv_pages_touched);
  for (size_t g = 0; g < stats.kv_pages_touched.size(); ++g) {
    stats.kv_touched_bytes += TouchedBytes(impl_->storage.groups()[g], stats.kv_pages_touched[g]);
  }
  if (impl_->draft == nullptr) return stats;
  AtLeast(impl_->draft_touched_by_fit, stats.draft_pages_touched);
  for (size_t g = 0; g < stats.draft_pages_touched.size(); ++g) {
    stats.kv_touched_bytes +=
        TouchedBytes(impl_->draft->storage.groups()[g], stats.draft_pages_touched[g]);
  }
  return stats;
}

}  // namespace nibble
