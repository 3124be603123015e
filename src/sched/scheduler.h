#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "kv/invariants.h"
#include "kv/page_book.h"
#include "sched/draft_policy.h"
#include "sched/policy.h"
#include "sched/sequence.h"
#include "sched/step.h"
#include "sched/step_price.h"

namespace nibble {

struct SchedulerLimits {
  int max_rows = 512;    // most rows of a step
  int max_running = 16;  // most sequences that hold pages
  int max_queue = 1024;  // most sequences that wait
  Policy policy = Policy::kPriority;
  Batching batching = Batching::kContinuous;
  // Most seconds of a step by StepPrice; 0: what prompts add to the steps of answers costs no more
  // than the answers alone, so that with a long prompt beside it a token takes twice as long on
  // average. Where several prompts are there or wait, all but one count as answers: twice what a
  // step will take when they are.
  double max_step_s = 0;
};

// The least rows of prompts that are worth a step beside so many answers: they fill a tile, and are
// not too few for it, because attention reads the whole context for one row as for eight. Under
// max_step_s a step may hold so many whatever they cost: a limit must not stop a prompt. Under the
// default rule steps of answers alone save up for them.
constexpr int LeastPromptRows(int answers) {
  const int fill = kRowTile - answers % kRowTile;
  return fill >= kRowTile / 2 ? fill : fill + kRowTile;
}

// A sequence to come. max_positions: most tokens of prompt and answer that are ever computed (the
// last token of an answer is not).
struct NewSequence {
  RequestId id;
  int priority = 0;
  SharedTokens prompt;
  int max_positions = 0;
  // Positions from here on are computed, not taken from the prefix cache: somebody wants to see
  // their logits.
  int compute_from = 1 << 30;
  // A sequence with the same prompt, added before: this one waits for it to compute the prompt and
  // goes on from its pages.
  std::optional<RequestId> leader = {};
};

struct SchedulerCounters {
  int64_t steps = 0;  // plans that were not empty
  int64_t rows = 0;   // planned rows
  // Sequences that lost their pages because an earlier one had none for its next token, and
  // because the first in order had none for its prompt.
  int64_t preemptions_for_answers = 0;
  int64_t preemptions_for_prompts = 0;
  int64_t prefix_hits = 0;    // admissions with positions from the prefix cache
  int64_t cached_tokens = 0;  // those positions
  int64_t forked_tokens = 0;  // positions taken over from another choice
  int64_t drafts = 0;         // sequences in steps that had drafted rows
  int64_t drafted_rows = 0;

  int64_t preemptions() const { return preemptions_for_answers + preemptions_for_prompts; }
};

// Decides what each step computes. Knows no tensors, threads or clock: a server and a simulator
// drive the same object.
//
// A step serves, under one budget of rows and one of time by StepPrice: answers that are being
// generated (one row each), then running prompts in chunks, then waiting ones, each in
// ServiceOrder; nobody overtakes a waiting sequence that the policy has chosen and that does not
// fit yet. A sequence is admitted when available pages hold all its known tokens and one more, and
// what running prompts still have to fill. When a generating sequence, or the first of all, finds
// no page, later ones lose theirs, last first, and are computed again when they are admitted
// again. The first in order is never preempted and makes progress in every step, so every sequence
// ends.
//
// Drafts come last: they take rows and pages that nobody else wants in this step, never preempt,
// and change no decision about the others.
class Scheduler {
 public:
  Scheduler(SchedulerLimits limits, std::span<const PoolSpec> groups,
            const PageBookOptions& options = {}, StepPrice price = {});

  const SchedulerLimits& limits() const { return limits_; }
  // Most positions of one sequence that all pages together can hold.
  int capacity() const { return capacity_; }

  // kBadInput with both numbers when a sequence of so many positions can never run.
  Status CheckFits(int max_positions) const;

  // kBadInput as CheckFits; kNoRoom when the queue is full. The id must be new.
  Status Add(NewSequence sequence);

  // Tokens that may follow the known ones of a sequence that is generating, and the chance of each
  // that it is accepted when those before it are. For the next plan, which verifies none, some or
  // all of them (sched/draft_policy.h): as far as rows, time and free pages are left beside
  // everything else. At most kMostDraft.
  void Propose(RequestId id, std::span<const TokenId> draft, std::span<const double> chances);

  // The next step, of at most min(budget, max_rows) rows; empty when nothing can run. One at a
  // time: commit or drop it before anything else is called.
  Step Plan(int budget);

  // The next token of a sequence whose tokens are all computed.
  void Append(RequestId id, TokenId token);

  // Ends a sequence and frees its pages. Unknown ids are ignored.
  void Remove(RequestId id);

  // Batching::kStatic: from now on nobody comes, or few do, and a bus need not wait to be full.
  void CloseArrivals() { closed_ = true; }
  // Nothing runs, and no plan will hold anything before others come or arrivals are closed.
  bool WaitsForArrivals() const;

  const Sequence* Find(RequestId id) const;
  int waiting() const { return static_cast<int>(waiting_.size()); }
  int running() const { return static_cast<int>(running_.size()); }
  const SchedulerCounters& counters() const { return counters_; }
  const PageBook& book() const { return book_; }
  const StepPrice& price() const { return price_; }
  std::vector<CheckedSequence> AllPages() const;  // for the invariant checker

 private:
  // What a plan has to spend.
  struct Budget {
    int rows = 0;
    double seconds = 0;
    double answers_s = 0;  // price of the answers, which are planned already
    int answers = 0;       // their rows
  };
  // What a waiting sequence would take over when it is admitted.
  struct Start {
    bool ready = true;  // false: its leader has not computed the prompt yet
    const Sequence* fork = nullptr;
    PrefixHit hit;
    int positions = 0;
  };
  FormPages ToKnownEnd(const Sequence& sequence, int group) const;
  void ComputeOutstanding();
  void AddOutstanding(const Sequence& sequence);
  bool CanAdmit(const Sequence& sequence, const Start& start) const;
  Start StartOf(Sequence& sequence, PrefixMemo* memo = nullptr) const;
  std::map<ServiceOrder, Sequence*>::iterator ChooseWaiting();
  bool PreemptAfter(const Sequence& sequence, Step& step);
  int PromptRows(int first, int wanted, const Budget& budget, const Step& step);
  Budget TimeBudget(int rows, const Step& step);
  void SaveUp(const Budget& budget, const Step& step);
  void AddDrafts(const Budget& budget, Step& step);
  void Serve(Sequence& sequence, int rows, Step& step);
  void ServeGenerating(int budget, Step& step);
  void ServePrompts(const Budget& budget, Step& step);
  int RoomForFirst(Sequence& sequence, Step& step);
  int Seats() const;
  void Admit(const Budget& budget, Step& step);
  void TakeOver(Sequence& sequence, const Start& start);

  SchedulerLimits limits_;
  PageBook book_;
  StepPrice price_;
  double saved_s_ = 0;   // by steps that held no prompt because its least chunk cost too much
  bool saving_ = false;  // this step is one
  int capacity_ = 0;
  uint64_t arrivals_ = 0;
  std::unordered_map<RequestId, std::unique_ptr<Sequence>> sequences_;
  std::map<ServiceOrder, Sequence*> waiting_;
  std::vector<Sequence*> running_;       // in ServiceOrder
  std::vector<FormPages> outstanding_;   // per group: pages that running_ still need to known ends
  std::vector<WaitingView> candidates_;  // reused
  int boarding_ = 0;                     // kStatic: how many may still get on
  bool closed_ = false;                  // see CloseArrivals
  SchedulerCounters counters_;
};

}  // namespace nibble
