#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/request.h"

namespace nibble {

// A sink that queues events for one reading thread. It holds at most one event per generated
// token, so it is as bounded as the request.
class EventStream : public EventSink {
 public:
  using Event = std::variant<TokenEvent, FinishEvent>;

  // choices: Request::n.
  explicit EventStream(int choices = 1) : open_choices_(choices) {}

  // Waits for the next event; nothing after the last choice's FinishEvent.
  std::optional<Event> Next();
  // The same, but gives up after `seconds` (poll for Ctrl-C meanwhile): nothing and done() false.
  std::optional<Event> NextFor(double seconds);
  bool done() const;

  void OnToken(RequestId id, const TokenEvent& event) override;
  void OnFinish(RequestId id, const FinishEvent& event) override;

 private:
  void Push(Event event, bool finish);
  std::optional<Event> Pop();  // with mutex_ held

  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Event> events_;
  int open_choices_;
};

// Everything one choice produced.
struct Answer {
  std::vector<TokenEvent> tokens;
  std::string text;
  FinishEvent finish;
};

// Reads a stream to its end: answers[choice].
std::vector<Answer> Collect(EventStream& stream, int choices = 1);

}  // namespace nibble
