#include "engine/two_drafters.h"

#include <utility>

namespace nibble {

void TwoDrafters::Propose(std::span<const DraftQuery> queries, std::vector<Draft>& drafts) {
  first_->Propose(queries, drafts);
  rest_.clear();
  places_.clear();
  for (size_t q = 0; q < queries.size(); ++q) {
    if (!drafts[q].chances.empty() && drafts[q].chances[0] >= kLikely) continue;
    rest_.push_back(queries[q]);
    places_.push_back(q);
  }
  if (rest_.empty()) return;
  second_->Propose(rest_, more_);
  for (size_t i = 0; i < places_.size(); ++i) {
    if (!more_[i].tokens.empty()) std::swap(drafts[places_[i]], more_[i]);
  }
}

void TwoDrafters::Forget(RequestId sequence) {
  first_->Forget(sequence);
  second_->Forget(sequence);
}

}  // namespace nibble
