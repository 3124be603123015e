#pragma once

#include <span>
#include <vector>

#include "sched/step_price.h"

namespace nibble {

// Most tokens that are drafted for one sequence in one step.
inline constexpr int kMostDraft = 31;

// What somebody proposes for a sequence that a step serves: tokens behind its last known one.
struct DraftOffer {
  int first = 0;  // position of the first proposed token
  // [tokens], at most kMostDraft: the chance that each is accepted when all before it were.
  std::span<const double> chances = {};
  double cost_s = 0;  // seconds that each token takes beside its row: a draft model's step
};

// What a step has left for drafts.
struct DraftRoom {
  int answers = 0;     // tokens that it gives without them
  int rows = 0;        // most that may be added
  double seconds = 0;  // most that it may take with them, if prices are known
};

// How many tokens of each offer to verify, so that the step gives most tokens a second. step: what
// it holds already. A row of an offer is worth the chance that it and all before it are accepted.
// Rows are taken in the order of their worth, and of all numbers of them the best is chosen; it
// must beat none by kDraftGain. Prices have steps, so that the ninth row may be too dear and the
// sixteenth not. Without prices a row is taken that is more likely accepted than not.
inline constexpr double kDraftGain = 1.02;
std::vector<int> ChooseDrafts(const StepPrice& price, const StepLoad& step, const DraftRoom& room,
                              std::span<const DraftOffer> offers);

}  // namespace nibble
