#include "sched/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace nibble {
namespace {

constexpr int kEndless = 1 << 30;  // positions

// Most positions that pools hold for one sequence computed row by row.
int Capacity(std::span<const PoolSpec> groups) {
  int64_t capacity = kEndless;
  for (const PoolSpec& group : groups) {
    const int unbounded = PeakPages(group.window, kEndless, 1);
    if (group.window != 0 && group.pages >= unbounded) continue;
    capacity = std::min(capacity, int64_t{group.pages} * kPageTokens);
  }
  return static_cast<int>(capacity);
}

bool Before(const Sequence* a, const Sequence* b) { return a->order < b->order; }

}  // namespace

Scheduler::Scheduler(SchedulerLimits limits, std::span<const PoolSpec> groups)
    : limits_(limits), book_(groups), capacity_(Capacity(groups)) {
  NIBBLE_CHECK(limits.max_rows > 0 && limits.max_running > 0 && limits.max_queue > 0);
}

Status Scheduler::CheckFits(int max_positions) const {
  if (max_positions <= capacity_) return {};
  return BadInput("the request needs KV pages for {} tokens and all pages together hold {}",
                  max_positions, capacity_);
}

Status Scheduler::Add(NewSequence added) {
  NIBBLE_CHECK(added.prompt && !added.prompt->empty() && !sequences_.contains(added.id));
  NIBBLE_CHECK(added.max_positions >= static_cast<int>(added.prompt->size()));
  NIBBLE_RETURN_IF_ERROR(CheckFits(added.max_positions));
  if (waiting() >= limits_.max_queue) {
    return Fail(ErrorKind::kNoRoom, "the queue is full: {} requests wait", waiting());
  }
  auto sequence =
      std::make_unique<Sequence>(added.id, ServiceOrder{added.priority, arrivals_++}, book_);
  sequence->max_positions = added.max_positions;
  sequence->prompt = std::move(added.prompt);
  waiting_.emplace(sequence->order, sequence.get());
  sequences_.emplace(added.id, std::move(sequence));
  return {};
}

Step Scheduler::Plan(int budget) {
  Step step;
  budget = std::min(budget, limits_.max_rows);
  // A row is kept for the first in order, so that many short answers cannot hold up its prompt.
  const bool prompt_first =
      !running_.empty() && running_[0]->pending() > 0 && !running_[0]->generating();
  ServeGenerating(budget - (prompt_first ? 1 : 0), step);
  ServePrompts(budget, step);
  // Whoever was just preempted would come right back.
  if (step.preempted_.empty()) Admit(budget, step);
  counters_.steps += step.empty() ? 0 : 1;
  counters_.rows += step.rows();
  counters_.preemptions_for_pages += static_cast<int64_t>(step.preempted_.size());
  return step;
}

void Scheduler::ServeGenerating(int budget, Step& step) {
  // Preemption takes from the end of running_, behind i.
  for (size_t i = 0; i < running_.size() && step.rows() < budget; ++i) {
    Sequence& sequence = *running_[i];
    if (!sequence.generating()) continue;
    bool room = book_.Room(sequence.pages, 1) > 0;
    while (!room && PreemptAfter(sequence, step)) room = book_.Room(sequence.pages, 1) > 0;
    if (room) Serve(sequence, 1, step);  // else it keeps its pages and waits for an earlier one
  }
}

void Scheduler::ServePrompts(int budget, Step& step) {
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    if (sequence.generating() || sequence.pending() == 0) continue;
    if (step.rows() >= budget) return;
    int rows = book_.Room(sequence.pages, sequence.pending());
    // Only the first in order takes pages for a prompt: that is enough for progress.
    while (rows <= 0 && i == 0 && PreemptAfter(sequence, step)) {
      rows = book_.Room(sequence.pages, sequence.pending());
    }
    rows = std::min(rows, budget - step.rows());
    if (rows > 0) Serve(sequence, rows, step);
  }
}

void Scheduler::Admit(int budget, Step& step) {
  while (step.rows() < budget && !waiting_.empty() && running() < limits_.max_running) {
    Sequence& sequence = *waiting_.begin()->second;
    if (!CanAdmit(sequence)) return;
    const int rows = std::min(budget - step.rows(), book_.Room(sequence.pages, sequence.pending()));
    if (rows <= 0) return;  // window pages that this step's chunks return when it commits
    waiting_.erase(waiting_.begin());
    running_.insert(std::upper_bound(running_.begin(), running_.end(), &sequence, Before),
                    &sequence);
    Serve(sequence, rows, step);
  }
}

void Scheduler::Serve(Sequence& sequence, int rows, Step& step) {
  auto reservation = book_.Reserve(sequence.pages, rows);
  NIBBLE_CHECK(reservation.has_value());
  step.Add({&sequence, sequence.computed(), rows}, *std::move(reservation));
}

int Scheduler::PagesToKnownEnd(const Sequence& sequence, int group) const {
  const int known = sequence.tokens();
  return PeakPages(book_.window(group), std::min(known + 1, sequence.max_positions), 1);
}

bool Scheduler::CanAdmit(const Sequence& sequence) const {
  for (int g = 0; g < book_.groups(); ++g) {
    int64_t free = book_.pool(g).free_pages();
    for (const Sequence* other : running_) {
      free -= std::max(0, PagesToKnownEnd(*other, g) - other->pages.held(g));
    }
    if (free < PagesToKnownEnd(sequence, g)) return false;
  }
  return true;
}

bool Scheduler::PreemptAfter(const Sequence& sequence, Step& step) {
  Sequence* victim = running_.back();
  if (victim == &sequence) return false;
  step.Drop(*victim);
  victim->pages.Clear();
  ++victim->preemptions;
  running_.pop_back();
  waiting_.emplace(victim->order, victim);
  step.preempted_.push_back(victim->id);
  return true;
}

void Scheduler::Append(RequestId id, TokenId token) {
  Sequence& sequence = *sequences_.at(id);
  NIBBLE_CHECK(sequence.pending() == 0);
  sequence.answer.push_back(token);
}

void Scheduler::Remove(RequestId id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  waiting_.erase(found->second->order);
  std::erase(running_, found->second.get());
  sequences_.erase(found);
}

const Sequence* Scheduler::Find(RequestId id) const {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : found->second.get();
}

std::vector<const SequencePages*> Scheduler::AllPages() const {
  std::vector<const SequencePages*> all;
  all.reserve(sequences_.size());
  for (const auto& [id, sequence] : sequences_) all.push_back(&sequence->pages);
  return all;
}

}  // namespace nibble
