#pragma once

#include <utility>
#include <vector>

#include "kv/page_book.h"
#include "sched/sequence.h"
#include "sched/step_price.h"

namespace nibble {

// Consecutive tokens of one sequence that a step computes; their pages are in its tables.
struct StepSpan {
  Sequence* sequence = nullptr;
  int first = 0;  // position of the first row
  int rows = 0;
  int drafted = 0;  // the last of them: tokens of the sequence's draft
  // The last known token is among them: its logits give the next one.
  bool ReachesEnd() const { return first + rows - drafted == sequence->tokens(); }
};

// One step as a transaction: what is to be computed, with the pages for it reserved. Without Commit
// nothing has happened: the destructor gives the pages back and the sequences are as before.
class Step {
 public:
  const std::vector<StepSpan>& spans() const { return spans_; }
  // Pages to be copied before the span is computed.
  std::span<const PageCopy> copies(size_t span) const { return reservations_[span].copies(); }
  // Sequences that lost their pages to make this step possible; that stays so without Commit.
  const std::vector<RequestId>& preempted() const { return preempted_; }
  int rows() const { return load_.rows; }
  const StepLoad& load() const { return load_; }
  bool empty() const { return spans_.empty(); }

  // So many of a span's drafted tokens are what the model would have drawn (else none): they join
  // the answer when the step commits.
  void Accept(size_t span, int tokens) { accepted_[span] = tokens; }

  // All rows are computed: the sequences' computed() advance, over accepted drafts, too; what
  // others hold is rolled back.
  void Commit() {
    for (size_t i = 0; i < spans_.size(); ++i) {
      Sequence& sequence = *spans_[i].sequence;
      const auto end = sequence.draft.begin() + accepted_[i];
      sequence.answer.insert(sequence.answer.end(), sequence.draft.begin(), end);
      sequence.draft.clear();
      reservations_[i].Commit(spans_[i].rows - spans_[i].drafted + accepted_[i], sequence.list());
    }
    reservations_.clear();
    spans_.clear();
  }

 private:
  friend class Scheduler;
  void Add(StepSpan span, PageReservation reservation) {
    spans_.push_back(span);
    reservations_.push_back(std::move(reservation));
    accepted_.push_back(0);
    load_ = load_ + LoadOf(span.first, span.rows, span.ReachesEnd());
  }
  void Drop(const Sequence& sequence) {
    for (size_t i = 0; i < spans_.size(); ++i) {
      if (spans_[i].sequence != &sequence) continue;
      load_ = load_ - LoadOf(spans_[i].first, spans_[i].rows, spans_[i].ReachesEnd());
      spans_.erase(spans_.begin() + static_cast<ptrdiff_t>(i));
      reservations_.erase(reservations_.begin() + static_cast<ptrdiff_t>(i));
      accepted_.erase(accepted_.begin() + static_cast<ptrdiff_t>(i));
      return;
    }
  }
  // Drafted rows behind a span's one, for which its reservation has room.
  void Extend(size_t span, int drafted) {
    StepSpan& of = spans_[span];
    load_ = load_ - LoadOf(of.first, of.rows, true);
    of.drafted = drafted;
    of.rows += drafted;
    StepLoad load = LoadOf(of.first, of.rows, true);
    load.logit_rows += drafted;
    load_ = load_ + load;
  }

  std::vector<StepSpan> spans_;
  std::vector<PageReservation> reservations_;  // one per span
  std::vector<int> accepted_;                  // drafted tokens of each span
  std::vector<RequestId> preempted_;
  StepLoad load_;
};

}  // namespace nibble
