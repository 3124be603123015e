#pragma once

#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "kv/page_book.h"
#include "sched/sequence.h"
#include "sched/step.h"

namespace nibble {

struct SchedulerLimits {
  int max_rows = 512;    // most rows of a step
  int max_running = 16;  // most sequences that hold pages
  int max_queue = 1024;  // most sequences that wait
};

// A sequence to come. max_positions: most tokens of prompt and answer that are ever computed (the
// last token of an answer is not).
struct NewSequence {
  RequestId id;
  int priority = 0;
  SharedTokens prompt;
  int max_positions = 0;
};

struct SchedulerCounters {
  int64_t steps = 0;                  // plans that were not empty
  int64_t rows = 0;                   // planned rows
  int64_t preemptions_for_pages = 0;  // sequences that lost their pages to an earlier one
};

// Decides what each step computes. Knows no tensors, threads or clock: a server and a simulator
// drive the same object.
//
// A step serves, under one budget of rows: answers that are being generated (one row each), then
// running prompts in chunks, then waiting ones, each in ServiceOrder; nobody overtakes a waiting
// sequence that does not fit yet. A sequence is admitted when free pages hold all its known tokens
// and one more, and what running prompts still have to fill. When a generating sequence, or the
// first of all, finds no page, later ones lose theirs, last first, and are computed again when they
// are admitted again. The first in order is never preempted and makes progress in every step, so
// every sequence ends.
class Scheduler {
 public:
  Scheduler(SchedulerLimits limits, std::span<const PoolSpec> groups);

  const SchedulerLimits& limits() const { return limits_; }
  // Most positions of one sequence that all pages together can hold.
  int capacity() const { return capacity_; }

  // kBadInput with both numbers when a sequence of so many positions can never run.
  Status CheckFits(int max_positions) const;

  // kBadInput as CheckFits; kNoRoom when the queue is full. The id must be new.
  Status Add(NewSequence sequence);

  // The next step, of at most min(budget, max_rows) rows; empty when nothing can run. One at a
  // time: commit or drop it before anything else is called.
  Step Plan(int budget);

  // The next token of a sequence whose tokens are all computed.
  void Append(RequestId id, TokenId token);

  // Ends a sequence and frees its pages. Unknown ids are ignored.
  void Remove(RequestId id);

  const Sequence* Find(RequestId id) const;
  int waiting() const { return static_cast<int>(waiting_.size()); }
  int running() const { return static_cast<int>(running_.size()); }
  const SchedulerCounters& counters() const { return counters_; }
  const PageBook& book() const { return book_; }
  std::vector<const SequencePages*> AllPages() const;  // for the invariant checker

 private:
  int PagesToKnownEnd(const Sequence& sequence, int group) const;
  bool CanAdmit(const Sequence& sequence) const;
  bool PreemptAfter(const Sequence& sequence, Step& step);
  void Serve(Sequence& sequence, int rows, Step& step);
  void ServeGenerating(int budget, Step& step);
  void ServePrompts(int budget, Step& step);
  void Admit(int budget, Step& step);

  SchedulerLimits limits_;
  PageBook book_;
  int capacity_ = 0;
  uint64_t arrivals_ = 0;
  std::unordered_map<RequestId, std::unique_ptr<Sequence>> sequences_;
  std::map<ServiceOrder, Sequence*> waiting_;
  std::vector<Sequence*> running_;  // in ServiceOrder
  SchedulerCounters counters_;
};

}  // namespace nibble
