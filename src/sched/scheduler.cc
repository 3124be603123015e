#include "sched/scheduler.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace nibble {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

bool Before(const Sequence* a, const Sequence* b) { return a->order < b->order; }

}  // namespace

Scheduler::Scheduler(SchedulerLimits limits, std::span<const PoolSpec> groups,
                     const PageBookOptions& options, StepPrice price)
    : limits_(limits),
      book_(groups, options),
      price_(std::move(price)),
      capacity_(book_.Capacity()),
      outstanding_(groups.size()) {
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
  auto sequence = std::make_unique<Sequence>(
      added.id, OrderOf(limits_.policy, added.priority, arrivals_++), book_);
  sequence->max_positions = added.max_positions;
  sequence->most_taken = added.compute_from;
  sequence->leader = added.leader;
  sequence->prompt = std::move(added.prompt);
  waiting_.emplace(sequence->order, sequence.get());
  sequences_.emplace(added.id, std::move(sequence));
  return {};
}

Step Scheduler::Plan(int budget) {
  Step step;
  step.spans_.reserve(running_.size());
  step.reservations_.reserve(running_.size());
  budget = std::min(budget, limits_.max_rows);
  // A row is kept for the first in order, so that many short answers cannot hold up its prompt.
  const bool prompt_first =
      !running_.empty() && running_[0]->pending() > 0 && !running_[0]->generating();
  ServeGenerating(budget - (prompt_first ? 1 : 0), step);
  const Budget rest = TimeBudget(budget, step);
  ServePrompts(rest, step);
  // Whoever was just preempted would come right back.
  if (step.preempted_.empty()) Admit(rest, step);
  SaveUp(rest, step);
  AddDrafts(rest, step);
  counters_.steps += step.empty() ? 0 : 1;
  counters_.rows += step.rows();
  return step;
}

void Scheduler::ServeGenerating(int budget, Step& step) {
  // Preemption takes from the end of running_, behind i.
  for (size_t i = 0; i < running_.size() && step.rows() < budget; ++i) {
    Sequence& sequence = *running_[i];
    if (!sequence.generating()) continue;
    bool room = book_.Room(sequence.pages, 1) > 0;
    while (!room && PreemptAfter(sequence, step)) {
      ++counters_.preemptions_for_answers;
      room = book_.Room(sequence.pages, 1) > 0;
    }
    if (room) Serve(sequence, 1, step);  // else it keeps its pages and waits for an earlier one
  }
}

Scheduler::Budget Scheduler::TimeBudget(int rows, const Step& step) {
  Budget budget{.rows = rows, .seconds = kNoLimit, .answers_s = 0, .answers = step.rows()};
  saving_ = false;
  if (!price_.known()) return budget;
  if (limits_.max_step_s > 0) {
    budget.seconds = limits_.max_step_s;
  } else if (!step.empty()) {
    budget.answers_s = price_.Seconds(step.load());
    // With everybody but one who is here, or can be, among the answers: steps will take that long,
    // and held to less the batch would not fill.
    const int others = std::min(running() + waiting(), limits_.max_running) - 1;
    const int more = std::max(others - step.rows(), 0);
    const double crowd_s = price_.Seconds(step.load() + StepLoad{.rows = more, .logit_rows = more});
    budget.seconds = 2 * crowd_s + saved_s_;
  }
  return budget;
}

// Rows of a prompt from position `first` on that the budget allows, at most `wanted`: all of them,
// or as many as fill tiles. The step's rows of prompts are none, or LeastPromptRows and more.
int Scheduler::PromptRows(int first, int wanted, const Budget& budget, const Step& step) {
  wanted = std::min(wanted, budget.rows - step.rows());
  if (wanted <= 0 || !price_.known()) return wanted;
  const int prompts = step.rows() - budget.answers;
  const int least = std::min(wanted, LeastPromptRows(budget.answers) - prompts);
  const int rows = RowsWithin(price_, step.load(), first, wanted, budget.seconds);
  if (rows == wanted) return rows;
  if (rows >= least) return std::max(rows - (step.rows() + rows) % kRowTile, 0);
  if (limits_.max_step_s > 0) return std::max(least, 0);
  saving_ = true;
  return 0;
}

// What this step's answers earned and no prompt spent stays for the next step, while a prompt waits
// for it.
void Scheduler::SaveUp(const Budget& budget, const Step& step) {
  const bool prompts = step.rows() > budget.answers;
  saved_s_ = saving_ && !prompts && budget.answers > 0 ? saved_s_ + budget.answers_s : 0;
}

void Scheduler::Propose(RequestId id, std::span<const TokenId> draft,
                        std::span<const double> chances) {
  Sequence& sequence = *sequences_.at(id);
  NIBBLE_CHECK(sequence.running && sequence.generating());
  NIBBLE_CHECK(draft.size() == chances.size() && draft.size() <= size_t{kMostDraft});
  sequence.draft.assign(draft.begin(), draft.end());
  sequence.draft_chances.assign(chances.begin(), chances.end());
}

void Scheduler::AddDrafts(const Budget& budget, Step& step) {
  std::vector<DraftOffer> offers(step.spans_.size());
  int answers = 0;
  bool any = false;
  for (size_t i = 0; i < step.spans_.size(); ++i) {
    const StepSpan& span = step.spans_[i];
    answers += span.ReachesEnd() ? 1 : 0;
    const Sequence& sequence = *span.sequence;
    if (sequence.draft.empty() || !sequence.generating()) continue;
    // The last token of an answer is drawn and never computed.
    const auto most = static_cast<size_t>(sequence.max_positions - sequence.tokens());
    offers[i] = {
        .first = sequence.tokens(),
        .chances =
            std::span(sequence.draft_chances).first(std::min(sequence.draft_chances.size(), most))};
    any |= most > 0;
  }
  if (any) {
    const DraftRoom room{.answers = answers,
                         .rows = budget.rows - step.rows(),
                         .seconds = limits_.max_step_s > 0 ? limits_.max_step_s : kNoLimit};
    const std::vector<int> chosen = ChooseDrafts(price_, step.load(), room, offers);
    for (size_t i = 0; i < chosen.size(); ++i) {
      if (chosen[i] == 0) continue;
      const int drafted = book_.Extend(step.reservations_[i], chosen[i]);
      step.Extend(i, drafted);
      counters_.drafts += drafted > 0 ? 1 : 0;
      counters_.drafted_rows += drafted;
    }
  }
  for (Sequence* sequence : running_) {
    if (sequence->draft.empty()) continue;
    const auto served = std::ranges::find(step.spans_, sequence, &StepSpan::sequence);
    sequence->draft.resize(served == step.spans_.end() ? 0 : served->drafted);
  }
}

void Scheduler::ServePrompts(const Budget& budget, Step& step) {
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    if (sequence.generating() || sequence.pending() == 0) continue;
    if (step.rows() >= budget.rows) return;
    // Only the first in order takes pages for a prompt: that is enough for progress.
    const int room =
        i == 0 ? RoomForFirst(sequence, step) : book_.Room(sequence.pages, sequence.pending());
    const int rows = PromptRows(sequence.computed(), room, budget, step);
    if (rows > 0) Serve(sequence, rows, step);
  }
}

int Scheduler::RoomForFirst(Sequence& sequence, Step& step) {
  int room = book_.Room(sequence.pages, sequence.pending());
  while (room <= 0 && PreemptAfter(sequence, step)) {
    ++counters_.preemptions_for_prompts;
    room = book_.Room(sequence.pages, sequence.pending());
  }
  if (room <= 0) {
    // Alone, and still no page: it shares a partly filled page with the prefix cache, and the copy
    // it would need is the one page too many. It starts again without.
    sequence.pages.Clear();
    room = book_.Room(sequence.pages, sequence.pending());
  }
  return room;
}

std::map<ServiceOrder, Sequence*>::iterator Scheduler::ChooseWaiting() {
  if (limits_.policy != Policy::kLongestPrefix) return waiting_.begin();
  candidates_.clear();
  PrefixMemo memo;
  for (auto at = waiting_.begin(); at != waiting_.end() && candidates_.size() < kLookAhead; ++at) {
    const Start start = StartOf(*at->second, &memo);
    candidates_.push_back({start.ready ? start.positions : -1, at->second->passes});
  }
  return std::next(waiting_.begin(),
                   static_cast<ptrdiff_t>(ChooseNext(limits_.policy, candidates_)));
}

Scheduler::Start Scheduler::StartOf(Sequence& sequence, PrefixMemo* memo) const {
  Start start;
  start.hit = book_.FindPrefix(sequence.cursor, sequence.list(), sequence.most_taken, memo);
  start.positions = start.hit.positions;
  if (!sequence.leader || !sequence.answer.empty()) return start;
  const Sequence* leader = Find(*sequence.leader);
  if (leader == nullptr) return start;
  // The last token of the prompt is computed by everybody: its logits give the first of an answer.
  const int most = std::min(static_cast<int>(sequence.prompt->size()) - 1, sequence.most_taken);
  start.ready = leader->computed() >= most;
  const int shared = start.ready ? book_.Forkable(leader->pages, most) : 0;
  if (shared > start.positions) {
    start.fork = leader;
    start.positions = shared;
  }
  return start;
}

int Scheduler::Seats() const { return std::min(limits_.max_running, limits_.max_queue); }

bool Scheduler::WaitsForArrivals() const {
  return limits_.batching == Batching::kStatic && running_.empty() && boarding_ == 0 &&
         BusLoad(waiting(), Seats(), closed_) == 0;
}

void Scheduler::Admit(const Budget& budget, Step& step) {
  if (waiting_.empty() || running() >= limits_.max_running) return;
  const bool bus = limits_.batching == Batching::kStatic;
  if (bus && running_.empty() && boarding_ == 0) {
    boarding_ = BusLoad(waiting(), Seats(), closed_);
  }
  ComputeOutstanding();
  while (step.rows() < budget.rows && !waiting_.empty() && running() < limits_.max_running) {
    if (bus && boarding_ == 0) return;
    const auto chosen = ChooseWaiting();
    Sequence& sequence = *chosen->second;
    const Start start = StartOf(sequence);
    if (!start.ready || !CanAdmit(sequence, start)) return;
    const int left = sequence.tokens() - start.positions;
    int rows = PromptRows(start.positions, left, budget, step);
    if (rows <= 0) return;
    TakeOver(sequence, start);
    rows = std::min(rows, book_.Room(sequence.pages, left));
    if (rows <= 0) {  // window pages that this step's chunks return when it commits
      sequence.pages.Clear();
      return;
    }
    if (chosen != waiting_.begin()) ++waiting_.begin()->second->passes;
    counters_.prefix_hits += start.fork == nullptr && sequence.taken > 0 ? 1 : 0;
    (start.fork == nullptr ? counters_.cached_tokens : counters_.forked_tokens) += sequence.taken;
    waiting_.erase(chosen);
    boarding_ = std::max(boarding_ - 1, 0);
    sequence.running = true;
    running_.insert(std::upper_bound(running_.begin(), running_.end(), &sequence, Before),
                    &sequence);
    Serve(sequence, rows, step);
    AddOutstanding(sequence);
  }
}

void Scheduler::TakeOver(Sequence& sequence, const Start& start) {
  sequence.pages.ReserveTables(sequence.max_positions);
  if (start.fork != nullptr) {
    book_.Fork(start.fork->pages, sequence.pages, start.positions);
  } else {
    book_.Attach(sequence.pages, start.hit);
  }
  sequence.taken = start.positions;
}

void Scheduler::Serve(Sequence& sequence, int rows, Step& step) {
  auto reservation = book_.Reserve(sequence.pages, rows);
  NIBBLE_CHECK(reservation.has_value());
  step.Add({&sequence, sequence.computed(), rows}, *std::move(reservation));
}

FormPages Scheduler::ToKnownEnd(const Sequence& sequence, int group) const {
  return book_.Peak(group, std::min(sequence.tokens() + 1, sequence.max_positions));
}

void Scheduler::ComputeOutstanding() {
  std::ranges::fill(outstanding_, FormPages{});
  for (const Sequence* sequence : running_) AddOutstanding(*sequence);
}

void Scheduler::AddOutstanding(const Sequence& sequence) {
  for (int g = 0; g < book_.groups(); ++g) {
    const FormPages end = ToKnownEnd(sequence, g);
    const FormPages held = sequence.pages.held(g);
    outstanding_[static_cast<size_t>(g)].pages += std::max(0, end.pages - held.pages);
    outstanding_[static_cast<size_t>(g)].open += std::max(0, end.open - held.open);
  }
}

bool Scheduler::CanAdmit(const Sequence& sequence, const Start& start) const {
  const int end = std::min(sequence.tokens() + 1, sequence.max_positions);
  for (int g = 0; g < book_.groups(); ++g) {
    const FormPages peak = ToKnownEnd(sequence, g);
    // What it takes over needs no page, but for those that come back from the cache.
    const int fresh = book_.Ends(g, end).pages - book_.Ends(g, start.positions).pages +
                      (!book_.two_forms(g) && start.positions % kPageTokens != 0 ? 1 : 0);
    const int revived = start.fork == nullptr ? book_.Revived(start.hit, g) : 0;
    const FormPages& others = outstanding_[static_cast<size_t>(g)];
    if (book_.pool(g).available_pages() - others.pages < std::min(peak.pages, fresh + revived) ||
        book_.open_pool(g).available_pages() - others.open < peak.open) {
      return false;
    }
  }
  return true;
}

bool Scheduler::PreemptAfter(const Sequence& sequence, Step& step) {
  Sequence* victim = running_.back();
  if (victim == &sequence) return false;
  step.Drop(*victim);
  victim->pages.Clear();
  victim->running = false;
  victim->draft.clear();
  ++victim->preemptions;
  running_.pop_back();
  waiting_.emplace(victim->order, victim);
  step.preempted_.push_back(victim->id);
  ++boarding_;  // it keeps its seat
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
  Sequence* sequence = found->second.get();
  if (sequence->running) {
    std::erase(running_, sequence);
  } else {
    waiting_.erase(sequence->order);
    boarding_ = std::min(boarding_, waiting());
  }
  sequences_.erase(found);
}

const Sequence* Scheduler::Find(RequestId id) const {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : found->second.get();
}

std::vector<CheckedSequence> Scheduler::AllPages() const {
  std::vector<CheckedSequence> all;
  all.reserve(sequences_.size());
  for (const auto& [id, sequence] : sequences_) all.push_back({&sequence->pages, sequence->list()});
  return all;
}

}  // namespace nibble
