// Random schedules over real models; fuzz/schedule_fuzz.cc goes on for ever over a fake one.
#include "tests/schedule/schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "engine/cpu_executor.h"
#include "engine/engine.h"
#include "engine/plan.h"
#include "model/config/model_file.h"
#include "platform/thread_pool.h"
#include "tests/support/test_data.h"
#include "tokenizer/parts.h"

namespace nibble::testing {
namespace {

// A model file, loaded once for each number of threads.
class FileModel : public ScheduleModel {
 public:
  FileModel(const std::filesystem::path& path, Act act, KvFormats formats, int max_context)
      : file_(ModelFile::Open(path).value()),
        act_(act),
        formats_(formats),
        max_context_(std::min(max_context, file_.config().context_length)),
        tokenizer_(Tokenizer::Make({}).value()) {}

  std::vector<PoolSpec> Pools(int tokens) const override {
    // As the engine does, with few sequences, so that windows and open pages get scarce, too.
    const EngineOptions options{.max_rows = 64, .max_running = 3};
    return PoolsForTokens(MakeKvGroups(file_.config(), formats_), tokens, options);
  }

  std::unique_ptr<Executor> Make(std::span<const PoolSpec> pools, int threads) override {
    Loaded& loaded = loaded_[threads];
    if (!loaded.decoder) {
      loaded.pool = std::make_unique<ThreadPool>(threads);
      loaded.decoder =
          Decoder::Load(file_, {.act = act_, .max_rows = 512, .max_context = max_context_},
                        KernelsFor(ChooseIsa().value()), *loaded.pool)
              .value();
    }
    return std::make_unique<Owned>(*loaded.decoder, MakeKvGroups(file_.config(), formats_), pools);
  }

  const Tokenizer& tokenizer() const override { return tokenizer_; }
  int max_context() const override { return max_context_; }
  int vocabulary() const { return file_.config().vocabulary; }

 private:
  // An executor with the pages it runs over.
  class Owned : public Executor {
   public:
    Owned(Decoder& decoder, std::vector<KvGroup> groups, std::span<const PoolSpec> pools)
        : storage_(Create(std::move(groups), pools)), executor_(decoder, storage_) {}
    int vocabulary() const override { return executor_.vocabulary(); }
    Status Execute(const ExecuteInput& input, LogitsSink& sink) override {
      return executor_.Execute(input, sink);
    }
    size_t WeightBytesPerStep() const override { return executor_.WeightBytesPerStep(); }
    double KvBytesRead(int position) const override { return executor_.KvBytesRead(position); }

   private:
    static KvStorage Create(std::vector<KvGroup> groups, std::span<const PoolSpec> pools) {
      PlannedPools planned;
      planned.pools.assign(pools.begin(), pools.end());
      return KvStorage::Create(std::move(groups), planned.OpenPages(), planned.SealedPages())
          .value();
    }
    KvStorage storage_;
    CpuExecutor executor_;
  };
  struct Loaded {
    std::unique_ptr<ThreadPool> pool;
    std::unique_ptr<Decoder> decoder;
  };
  ModelFile file_;
  Act act_;
  KvFormats formats_;
  int max_context_;
  Tokenizer tokenizer_;
  std::map<int, Loaded> loaded_;
};

struct Plan {
  Act act = Act::kInt8;
  KvFormat kv = KvFormat::kF16;
  int max_context = 400;
  uint32_t first_seed = 0;
  int sets = 2;       // of questions
  int schedules = 6;  // of each
};

ScheduleCounts RunPlan(const std::filesystem::path& path, const Plan& plan) {
  FileModel model(path, plan.act, {.k = plan.kv, .v = plan.kv}, plan.max_context);
  ScheduleCounts counts;
  for (int set = 0; set < plan.sets; ++set) {
    std::mt19937 random(plan.first_seed + static_cast<uint32_t>(set));
    const Pick pick = [&](int low, int high) {
      return low + static_cast<int>(random() % static_cast<uint32_t>(high - low + 1));
    };
    std::vector<Question> questions =
        MakeQuestions(pick, 9, model.vocabulary(), model.max_context());
    AskAlone(model, questions);
    for (int schedule = 0; schedule < plan.schedules; ++schedule) {
      const auto problem = RunSchedule(pick, model, questions, counts);
      EXPECT_FALSE(problem) << *problem << ", set " << set << ", schedule " << schedule;
      if (problem) return counts;
    }
  }
  return counts;
}

void ExpectMuchMet(const ScheduleCounts& counts) {
  EXPECT_GT(counts.preemptions, 3);
  EXPECT_GT(counts.cached_tokens, 300);
  EXPECT_GT(counts.forked_tokens, 300);
  EXPECT_GT(counts.cancelled, 0);
  EXPECT_GT(counts.longest, 6 * kPageTokens);
}

TEST(Schedule, Shakespeare) {
  const auto path = SourcePath("models/shakespeare");
  for (const KvFormat kv : {KvFormat::kF16, KvFormat::kF32}) {
    RunPlan(path, {.act = Act::kF32, .kv = kv, .schedules = 4});
  }
}

TEST(Schedule, Stories260K) {
  NIBBLE_SHARED_OR_SKIP(path, "models/stories260K/tinyllamas-stories-260k-f32.gguf");
  for (const KvFormat kv : {KvFormat::kF16, KvFormat::kF32}) {
    for (const Act act : {Act::kInt8, Act::kF32}) {
      ExpectMuchMet(RunPlan(path, {.act = act, .kv = kv, .first_seed = 7}));
    }
  }
}

TEST(Schedule, PastTheWindowsOfGemma) {
  for (const char* name : {"models/hf-320/gemma3", "models/hf-320/gemma2"}) {
    NIBBLE_SHARED_OR_SKIP(path, name);
    ExpectMuchMet(RunPlan(path, {.first_seed = 20}));
  }
}

TEST(Schedule, Qwen3) {
  NIBBLE_SHARED_OR_SKIP(path, "models/hf-320/qwen3");
  ExpectMuchMet(RunPlan(path, {.first_seed = 30}));
}

TEST(Schedule, SmolLm2) {
  NIBBLE_PULLED_OR_SKIP(path, "SmolLM2-135M-Instruct.Q4_1.gguf");
  RunPlan(path, {.first_seed = 40, .sets = 1, .schedules = 1});
}

}  // namespace
}  // namespace nibble::testing
