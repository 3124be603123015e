#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/request.h"
#include "kernels/activations.h"
#include "kv/page_book.h"
#include "model/decoder.h"
#include "model/kv_groups.h"
#include "platform/numa.h"
#include "sched/policy.h"

namespace nibble {

namespace grammar {
class Vocabulary;
}

class ModelFile;
class StepObserver;
class StepPrice;
class Tokenizer;

// Guessing what comes next and verifying several tokens in one step; answers stay the same bits.
struct Speculation {
  bool ngram = false;  // from what followed the last tokens before, in prompt and answer
  // By a smaller model of the same vocabulary: a GGUF file or a Hugging Face folder; empty: none.
  // Where both guess, what followed before goes first if it is likely right.
  std::filesystem::path draft = {};
  // What an answer's form forces is guessed, too (form_drafter.h).
  bool forms = true;

  bool on() const { return ngram || !draft.empty(); }
};

struct EngineOptions {
  int threads = 0;  // 0: affinity and cgroup quota decide
  // Nodes of memory that threads keep to and that weights and KV pages are spread over; none: as
  // the system does it.
  std::vector<NumaNode> nodes = {};
  Act act = Act::kInt8;
  KvFormats kv = {};
  // Most tokens of one request, prompt and answer together. 0: the model's own, or less when the
  // memory that is left does not hold so many.
  int max_context = 0;
  // Bytes of KV pages; 0: half of the memory that is left beside everything else. They are taken as
  // they are filled.
  size_t kv_memory = 0;
  int min_contexts = 1;  // so many whole requests of max_context tokens even so
  int max_rows = 512;    // most tokens computed in one step
  int max_running = 16;  // most sequences that hold pages at the same time
  int max_queue = 1024;  // most sequences that wait; more are refused with kNoRoom
  Policy policy = Policy::kPriority;
  Batching batching = Batching::kContinuous;
  bool prefix_cache = true;  // requests that begin alike share pages, also one after another
  // Bounds the seconds of a step by a table of prices, which is measured once when the engine is
  // made: at most max_step_s, or, where that is 0, twice the price of the answers in it alone.
  bool step_budget = true;
  double max_step_s = 0;
  Speculation speculation = {};
  // Sees the input of every linear layer of every step, on the engine's thread; the last event of a
  // request comes after its last call. Must outlive the engine. Not with step_budget, whose
  // measurement it would see too.
  LinearTap* tap = nullptr;
  // Told of every step, on the engine's thread. Must outlive the engine.
  StepObserver* steps = nullptr;
};

// The memory contract, known before anything is loaded.
struct EnginePlan {
  MemoryPlan model;
  MemoryPlan draft;            // of the draft model
  size_t kv_bytes = 0;         // page pools of both; pages are taken as they are filled
  size_t kv_open_bytes = 0;    // of these, pages that are not sealed yet, where they are others
  size_t sampler_bytes = 0;    // candidates, counts and log-probabilities of one row
  size_t tokenizer_bytes = 0;  // estimate from the vocabulary
  size_t process_bytes = 0;    // program, thread stacks, allocator
  size_t available_bytes = 0;  // free in the machine or cgroup when planned

  int max_context = 0;  // tokens of one request
  int kv_tokens = 0;    // tokens that all pages of the global layers hold together
  size_t kv_bytes_per_token = 0;
  bool kv_is_half = false;  // kv_bytes are half of what was left
  int fitting_context = 0;  // most tokens that the available memory holds, up to the one asked for

  size_t Total() const {
    return model.Total() + draft.Total() + kv_bytes + sampler_bytes + tokenizer_bytes +
           process_bytes;
  }
  // Most bytes ever: what is needed only while loading counts as well.
  size_t Peak() const {
    return Total() + std::max(model.load_scratch_bytes, draft.load_scratch_bytes);
  }
  bool Fits() const { return Peak() <= available_bytes; }
  std::string Describe() const;        // one line for people: every part and the sum
  std::vector<std::string> kv_groups;  // a line for people each: what a page holds
};

// What the engine has done, as of the end of its last step.
struct EngineStats {
  int waiting = 0;
  int running = 0;
  int64_t steps = 0;
  int64_t rows = 0;  // tokens computed
  int64_t preemptions = 0;
  int64_t preemptions_for_answers = 0;  // of these: an earlier sequence's next token had no page
  int64_t preemptions_for_prompts = 0;  // and: the first sequence's prompt had none
  int64_t sampled = 0;                  // tokens drawn
  bool speculates = false;
  int64_t drafts = 0;                     // of sequences in steps that had guesses
  int64_t drafted = 0;                    // guesses that steps verified
  int64_t accepted = 0;                   // of these, right ones
  std::vector<int64_t> accepted_at = {};  // the first, second … of each draft
  double step_s = 0;                      // in which steps ran
  double weight_bytes = 0;                // that all steps read
  double kv_bytes = 0;
  int64_t prefix_hits = 0;    // requests that began with positions from the prefix cache
  int64_t cached_tokens = 0;  // those positions
  int kv_pages_cached = 0;    // kept for the prefix cache, free for anybody
  std::vector<FormPages> kv_pages_touched = {};     // per group: pages that ever held anything
  std::vector<FormPages> draft_pages_touched = {};  // the same of the draft model
  size_t kv_touched_bytes = 0;                      // the memory of both
  int kv_pages_used = 0;                            // of all groups
  int kv_pages_peak = 0;                            // most of them after any step
  int kv_pages_total = 0;                           // of all groups
};

// Runs any number of requests over one model, on a thread of its own. All methods may be called
// from any thread.
class Engine {
 public:
  // Reads headers only, no tensor. Errors: those of the file; kNoRoom never (see EnginePlan::Fits).
  static Result<EnginePlan> Plan(const std::filesystem::path& path, const EngineOptions& options);

  static Result<EnginePlan> Plan(const ModelFile& file, const EngineOptions& options);

  // A GGUF file or a Hugging Face folder: plans, refuses with kNoRoom and the plan's figures when
  // it does not fit, loads tokenizer and weights, starts the thread.
  static Result<std::unique_ptr<Engine>> Create(const std::filesystem::path& path,
                                                const EngineOptions& options);

  // The same from an opened file, which is needed until this returns.
  static Result<std::unique_ptr<Engine>> Create(const ModelFile& file,
                                                const EngineOptions& options);

  // Ends unfinished requests with kCancelled.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Checks and queues. Errors: kBadInput for a request that is wrong or can never fit (both
  // numbers), kNoRoom when the queue is full. The sink gets events until its last OnFinish.
  Result<RequestId> Submit(Request request, std::shared_ptr<EventSink> sink);

  // Effective within one step; every unfinished choice gets OnFinish(kCancelled). Unknown and
  // finished ids are ignored.
  void Cancel(RequestId id);

  // Batching::kStatic: from now on a bus need not wait to be full.
  void CloseArrivals();

  const Tokenizer& tokenizer() const;
  // What Request::constraint is made for. Made when it is first asked for, which takes a fifth of a
  // second for 262,144 tokens; then shared.
  std::shared_ptr<const grammar::Vocabulary> vocabulary() const;
  const ModelConfig& config() const;
  const EnginePlan& plan() const;
  int threads() const;
  size_t WeightBytesPerStep() const;
  // What a step is expected to take; knows nothing without EngineOptions::step_budget.
  const StepPrice& step_price() const;
  // The pages of each KV group, as the scheduler has them.
  const std::vector<PoolSpec>& pools() const;
  EngineStats Stats() const;

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace nibble
