#include "engine/best_of.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace nibble {
namespace {

double MeanLogprob(const Answer& answer) {
  const FinishReason reason = answer.finish.reason;
  if (answer.tokens.empty() || reason == FinishReason::kError ||
      reason == FinishReason::kCancelled) {
    return -std::numeric_limits<double>::infinity();
  }
  double sum = 0;
  for (const TokenEvent& token : answer.tokens) sum += token.logprob;
  return sum / static_cast<double>(answer.tokens.size());
}

}  // namespace

BestOfSink::BestOfSink(std::shared_ptr<EventSink> sink, const Request& request, int choices)
    : sink_(std::move(sink)),
      n_(request.n),
      with_logprobs_(request.logprobs >= 0),
      open_(choices),
      answers_(static_cast<size_t>(choices)) {}

void BestOfSink::OnToken(RequestId /*id*/, const TokenEvent& event) {
  answers_[static_cast<size_t>(event.choice)].tokens.push_back(event);
}

void BestOfSink::OnFinish(RequestId id, const FinishEvent& event) {
  answers_[static_cast<size_t>(event.choice)].finish = event;
  if (--open_ > 0) return;
  std::vector<double> means;
  for (const Answer& answer : answers_) means.push_back(MeanLogprob(answer));
  std::vector<size_t> order(answers_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return means[a] > means[b]; });
  for (int choice = 0; choice < n_; ++choice) {
    Answer& answer = answers_[order[static_cast<size_t>(choice)]];
    for (TokenEvent& token : answer.tokens) {
      token.choice = choice;
      if (!with_logprobs_) token.logprob = 0;
      sink_->OnToken(id, token);
    }
    answer.finish.choice = choice;
    sink_->OnFinish(id, answer.finish);
  }
}

}  // namespace nibble
