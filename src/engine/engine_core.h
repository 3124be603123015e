#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/drafter.h"
#include "engine/executor.h"
#include "engine/generation.h"
#include "engine/request.h"
#include "engine/sampler.h"
#include "engine/step_record.h"
#include "sched/scheduler.h"

namespace nibble {

class Tokenizer;
struct KernelTable;

struct EngineCoreOptions {
  int max_context = 0;  // most tokens of prompt and answer
  SchedulerLimits limits;
  std::vector<PoolSpec> pools;  // one per KV group
  PageBookOptions pages = {};
  StepPrice price = {};
  std::function<double()> clock;  // seconds
  StepObserver* observer = nullptr;
  Drafter* drafter = nullptr;  // none: no speculation
};

// The engine without its thread: requests in, steps as transactions, events out. Everything but
// Check and Accept is for one thread.
class EngineCore {
 public:
  // All arguments outlive it.
  EngineCore(Executor& executor, const Tokenizer& tokenizer, const KernelTable& kernels,
             EngineCoreOptions options);

  // Whether a request can be served at all; kBadInput says which field is wrong. Any thread.
  Status Check(const Request& request) const;
  // The same, and everything made ready that takes time. Any thread.
  Result<std::shared_ptr<const AcceptedRequest>> Accept(Request request) const;

  // Queues all n choices of a request. When the queue is full they finish with the error.
  void Start(RequestId id, const std::shared_ptr<const AcceptedRequest>& accepted,
             const std::shared_ptr<EventSink>& sink, double submitted_s);

  void Cancel(RequestId id);
  void CancelAll();

  // Plans, reserves, executes, samples, commits and sends the events of one step. False when there
  // is nothing to do.
  bool RunStep();

  void CloseArrivals() { scheduler_.CloseArrivals(); }

  bool idle() const { return generations_.empty(); }
  // Whether RunStep would do something.
  bool runnable() const { return !idle() && !scheduler_.WaitsForArrivals(); }
  const Scheduler& scheduler() const { return scheduler_; }
  const EngineCoreOptions& options() const { return options_; }
  // Sums over all steps.
  struct Totals {
    int64_t sampled = 0;
    double seconds = 0;
    double weight_bytes = 0;
    double kv_bytes = 0;
    // Of speculation: sequences in steps that had guesses, guesses verified, and how many of the
    // first, second … of each were right.
    int64_t drafts = 0;
    int64_t drafted = 0;
    std::array<int64_t, kMostDraft> accepted_at = {};
  };
  const Totals& totals() const { return totals_; }

 private:
  // A row whose logits a step wants.
  struct Wanted {
    RequestId sequence;
    Generation* generation;
    int position;
    bool deliver;  // to Request::logits
    bool sample;
    // The next row's token, where it is a guess: rows behind are good if the one drawn is equal.
    TokenId guess = kNoToken;
  };
  class StepLogits;

  int MaxNew(const Request& request) const;
  void ProposeDrafts();
  void BuildInput(const Step& step);
  void EndRecord();
  void WantLogits(const StepSpan& span, Generation& generation, int row);
  void WantDrafted(const StepSpan& span, Generation& generation, int row);
  void AcceptDrafts(const StepLogits& logits, Step& step);
  void Advance(RequestId sequence, const Result<Drawn>& drawn, bool known);
  void End(RequestId sequence, FinishReason reason, std::optional<Error> error = std::nullopt);

  Executor& executor_;
  const Tokenizer& tokenizer_;
  EngineCoreOptions options_;
  Scheduler scheduler_;
  Sampler sampler_;
  uint64_t next_sequence_ = 1;
  // The scheduler's ids are one per choice.
  std::unordered_map<RequestId, Generation> generations_;
  std::unordered_map<RequestId, std::vector<RequestId>> choices_;  // of unfinished requests

  // Of the step at hand; reused.
  std::vector<TokenId> tokens_;
  std::vector<ExecuteSpan> spans_;
  std::vector<int> logit_rows_;
  std::vector<Wanted> wanted_;  // one per logit row
  std::vector<PageCopy> copies_;
  std::vector<DraftQuery> queries_;
  std::vector<Draft> drafts_;
  StepRecord record_;
  int cancelled_ = 0;  // sequences, since the last step
  Totals totals_;
};

}  // namespace nibble
