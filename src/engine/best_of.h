#pragma once

#include <memory>
#include <vector>

#include "engine/event_stream.h"
#include "engine/request.h"

namespace nibble {

// Collects the answers of a request with best_of and, when all are there, passes the n best on as
// choices 0 … n - 1: by mean log-probability of their tokens, ties to the lower choice, failed and
// cancelled ones last.
class BestOfSink : public EventSink {
 public:
  BestOfSink(std::shared_ptr<EventSink> sink, const Request& request, int choices);

  void OnToken(RequestId id, const TokenEvent& event) override;
  void OnFinish(RequestId id, const FinishEvent& event) override;

 private:
  std::shared_ptr<EventSink> sink_;
  int n_;
  bool with_logprobs_;
  int open_;
  std::vector<Answer> answers_;
};

}  // namespace nibble
