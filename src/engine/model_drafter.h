#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/acceptance.h"
#include "engine/drafter.h"
#include "engine/executor.h"
#include "engine/sampler.h"
#include "sched/draft_policy.h"
#include "sched/step_price.h"

namespace nibble {

struct KernelTable;

struct ModelDrafterOptions {
  std::vector<PoolSpec> pools;  // of the draft model
  int max_rows = 512;           // of a step of it
  int max_context = 0;          // positions that it may compute
  StepPrice price = {};         // of its steps
  StepPrice target_price = {};  // of the engine's
};

// Guesses by a smaller model of the same vocabulary (Leviathan et al. 2023; Chen et al. 2023) with
// pages of its own. It draws with the answer's own sampler and random numbers, so that it agrees
// more often than its distribution alone would. How many tokens it guesses follows from how often
// it was right, and from the prices of both models' steps: none where none pays. What it computed
// of guesses that proved right stays computed.
//
// Sequences that find no page are not guessed; when pages run out, those that were guessed longest
// ago give theirs back.
class ModelDrafter : public Drafter {
 public:
  // The executor outlives this.
  ModelDrafter(Executor& executor, const KernelTable& kernels, ModelDrafterOptions options);

  void Propose(std::span<const DraftQuery> queries, std::vector<Draft>& drafts) override;
  void Forget(RequestId sequence) override { answers_.erase(sequence); }

  std::vector<FormPages> Touched() const override;

  const PageBook& book() const { return book_; }
  int64_t steps() const { return steps_; }

 private:
  struct Answer {
    explicit Answer(PageBook& book) : pages(book) {}
    SequencePages pages;                   // committed: known tokens that are computed
    std::optional<PageReservation> ahead;  // the last known tokens and guesses, computed
    int ahead_known = 0;                   // known ones among these
    std::vector<TokenId> guessed;          // last time
    int known = 0;                         // tokens then
    Acceptance chances;
    int64_t used = 0;  // the round that guessed it last
  };
  // A sequence that is guessed in this round.
  struct Task {
    const DraftQuery* query = nullptr;
    Answer* answer = nullptr;
    Draft* draft = nullptr;
    int wanted = 0;      // tokens
    SamplerState state;  // behind what is guessed so far
  };
  class DrawSink;

  void Learn(Answer& answer, const TokenList& tokens);
  void ChooseLengths(std::span<const DraftQuery> queries);
  double ChanceOf(const Answer& answer) const;
  bool MakeRoom(Answer& answer, int positions);
  bool Prepare(Task& task);
  // Runs the rows from committed(), or from the last guess, of each task, and draws behind the
  // last.
  bool GuessNext(std::span<Task> tasks, bool first);

  Executor& executor_;
  ModelDrafterOptions options_;
  PageBook book_;
  Sampler sampler_;
  std::unordered_map<RequestId, Answer> answers_;
  Acceptance all_;
  std::vector<Task> tasks_;
  std::vector<int> lengths_;  // of each query
  int64_t round_ = 0;
  int64_t steps_ = 0;
};

}  // namespace nibble
