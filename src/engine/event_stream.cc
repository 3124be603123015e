#include "engine/event_stream.h"

#include <chrono>
#include <utility>

namespace nibble {

std::optional<EventStream::Event> EventStream::Next() {
  std::unique_lock lock(mutex_);
  ready_.wait(lock, [&] { return !events_.empty() || open_choices_ == 0; });
  return Pop();
}

std::optional<EventStream::Event> EventStream::NextFor(double seconds) {
  std::unique_lock lock(mutex_);
  ready_.wait_for(lock, std::chrono::duration<double>(seconds),
                  [&] { return !events_.empty() || open_choices_ == 0; });
  return Pop();
}

bool EventStream::done() const {
  const std::scoped_lock lock(mutex_);
  return events_.empty() && open_choices_ == 0;
}

std::optional<EventStream::Event> EventStream::Pop() {
  if (events_.empty()) return std::nullopt;
  Event event = std::move(events_.front());
  events_.pop_front();
  return event;
}

void EventStream::OnToken(RequestId /*id*/, const TokenEvent& event) { Push(event, false); }

void EventStream::OnFinish(RequestId /*id*/, const FinishEvent& event) { Push(event, true); }

void EventStream::Push(Event event, bool finish) {
  {
    const std::scoped_lock lock(mutex_);
    events_.push_back(std::move(event));
    if (finish) --open_choices_;
  }
  ready_.notify_one();
}

std::vector<Answer> Collect(EventStream& stream, int choices) {
  std::vector<Answer> answers(static_cast<size_t>(choices));
  while (auto event = stream.Next()) {
    if (const auto* token = std::get_if<TokenEvent>(&*event)) {
      Answer& answer = answers.at(static_cast<size_t>(token->choice));
      answer.text += token->text;
      answer.tokens.push_back(*token);
    } else {
      const auto& finish = std::get<FinishEvent>(*event);
      Answer& answer = answers.at(static_cast<size_t>(finish.choice));
      answer.text += finish.text;
      answer.finish = finish;
    }
  }
  return answers;
}

}  // namespace nibble
