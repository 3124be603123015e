#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/cpu_executor.h"
#include "engine/engine.h"
#include "engine/plan.h"
#include "model/config/model_file.h"
#include "platform/thread_pool.h"
#include "tests/schedule/schedule.h"
#include "tokenizer/parts.h"

namespace nibble::testing {

// An executor with the pages it runs over. Before a step it fills every page that the step is to
// seal with a pattern, and counts those in which something else stands afterwards.
class SealCountingExecutor : public Executor {
 public:
  SealCountingExecutor(Decoder& decoder, std::vector<KvGroup> groups,
                       std::span<const PoolSpec> pools, int64_t& seals)
      : storage_(Create(std::move(groups), pools)), executor_(decoder, storage_), seals_(seals) {}
  int vocabulary() const override { return executor_.vocabulary(); }
  size_t WeightBytesPerStep() const override { return executor_.WeightBytesPerStep(); }
  double KvBytesRead(int position) const override { return executor_.KvBytesRead(position); }

  Status Execute(const ExecuteInput& input, LogitsSink& sink) override {
    std::vector<std::span<std::byte>> due;
    for (const ExecuteSpan& span : input.spans) {
      for (size_t g = 0; g < storage_.groups().size(); ++g) AddDue(span, g, due);
    }
    for (const std::span<std::byte> page : due) std::memset(page.data(), kPattern, page.size());
    const Status status = executor_.Execute(input, sink);
    for (const std::span<std::byte> page : due) {
      const bool written =
          std::ranges::any_of(page, [](std::byte b) { return b != std::byte{kPattern}; });
      seals_ += written ? 1 : 0;
    }
    return status;
  }

 private:
  static constexpr uint8_t kPattern = 0xEE;

  static KvStorage Create(std::vector<KvGroup> groups, std::span<const PoolSpec> pools) {
    PlannedPools planned;
    planned.pools.assign(pools.begin(), pools.end());
    return KvStorage::Create(std::move(groups), planned.OpenPages(), planned.SealedPages()).value();
  }

  // Sealed pages of the units that the span's rows complete.
  void AddDue(const ExecuteSpan& span, size_t group, std::vector<std::span<std::byte>>& due) {
    const KvGroup& own = storage_.groups()[group];
    if (!own.two_forms()) return;
    const int g = static_cast<int>(group);
    const KvTable table = storage_.Table(g, span.pages->open_table(g), span.pages->table(g));
    const int unit = own.unit_pages();
    const int end = (span.first + span.rows) / (unit * kPageTokens) * unit;
    for (int p = span.first / (unit * kPageTokens) * unit; p < end; ++p) {
      const PageId page = table.sealed[static_cast<size_t>(p)];
      if (page == kNoPage) continue;
      due.emplace_back(
          table.sealed_arena + table.sealed_page_bytes * static_cast<size_t>(page.value()),
          table.sealed_page_bytes);
    }
  }

  KvStorage storage_;
  CpuExecutor executor_;
  int64_t& seals_;
};

// A model file, loaded once for each arithmetic and number of threads.
class FileModel : public ScheduleModel {
 public:
  FileModel(ModelFile file, int max_context)
      : file_(std::move(file)),
        max_context_(std::min(max_context, file_.config().context_length)),
        tokenizer_(Tokenizer::Make({}).value()) {}

  // How the next executors compute.
  void Use(Act act, KvFormats formats) {
    act_ = act;
    formats_ = std::move(formats);
    seals_ = 0;
  }

  std::vector<PoolSpec> Pools(int tokens) const override {
    // As the engine does, with few sequences, so that windows and open pages get scarce, too.
    const EngineOptions options{.max_rows = 64, .max_running = 3};
    return PoolsForTokens(Groups(), tokens, options);
  }

  std::unique_ptr<Executor> Make(std::span<const PoolSpec> pools, int threads) override {
    std::unique_ptr<ThreadPool>& pool = pools_[threads];
    if (!pool) pool = std::make_unique<ThreadPool>(threads);
    std::unique_ptr<Decoder>& decoder = decoders_[{act_, threads}];
    if (!decoder) {
      decoder = Decoder::Load(file_, {.act = act_, .max_rows = 512, .max_context = max_context_},
                              KernelsFor(ChooseIsa().value()), *pool)
                    .value();
    }
    return std::make_unique<SealCountingExecutor>(*decoder, Groups(), pools, seals_);
  }

  const Tokenizer& tokenizer() const override { return tokenizer_; }
  int max_context() const override { return max_context_; }
  int64_t seals() const override { return seals_; }
  int vocabulary() const { return file_.config().vocabulary; }

 private:
  std::vector<KvGroup> Groups() const { return MakeKvGroups(file_.config(), formats_).value(); }

  ModelFile file_;
  int max_context_;
  Tokenizer tokenizer_;
  Act act_ = Act::kInt8;
  KvFormats formats_;
  int64_t seals_ = 0;
  std::map<int, std::unique_ptr<ThreadPool>> pools_;  // by threads
  std::map<std::pair<Act, int>, std::unique_ptr<Decoder>> decoders_;
};

}  // namespace nibble::testing
