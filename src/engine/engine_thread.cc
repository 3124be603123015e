#include "engine/engine_thread.h"

#include <utility>

#include "platform/clock.h"

namespace nibble {

EngineThread::EngineThread(EngineCore& core) : core_(core) {
  Publish();
  thread_ = std::thread([this] { Loop(); });
}

EngineThread::~EngineThread() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

Result<RequestId> EngineThread::Submit(Request request, std::shared_ptr<EventSink> sink) {
  NIBBLE_RETURN_IF_ERROR(core_.Check(request));
  RequestId id;
  {
    const std::scoped_lock lock(mutex_);
    const int most = core_.scheduler().limits().max_queue;
    if (request.n > most - waiting_) {
      return Fail(ErrorKind::kNoRoom, "the queue is full: {} answers wait, at most {} may",
                  waiting_, most);
    }
    waiting_ += request.n;
    id = RequestId{next_id_++};
    mailbox_.push_back({id, std::move(request), std::move(sink), MonotonicSeconds()});
  }
  wake_.notify_one();
  return id;
}

void EngineThread::Cancel(RequestId id) {
  {
    const std::scoped_lock lock(mutex_);
    mailbox_.push_back({.id = id, .request = {}, .sink = nullptr});
  }
  wake_.notify_one();
}

EngineStats EngineThread::Stats() const {
  const std::scoped_lock lock(mutex_);
  return stats_;
}

void EngineThread::Publish() {
  const Scheduler& scheduler = core_.scheduler();
  waiting_ = scheduler.waiting();
  for (const Message& message : mailbox_) waiting_ += message.sink ? message.request.n : 0;
  stats_ = {.waiting = waiting_,
            .running = scheduler.running(),
            .steps = scheduler.counters().steps,
            .rows = scheduler.counters().rows,
            .preemptions = scheduler.counters().preemptions_for_pages};
  for (int g = 0; g < scheduler.book().groups(); ++g) {
    stats_.kv_pages_used += scheduler.book().pool(g).used_pages();
    stats_.kv_pages_total += scheduler.book().pool(g).size();
  }
}

void EngineThread::Loop() {
  std::vector<Message> messages;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      Publish();
      wake_.wait(lock, [&] { return stop_ || !mailbox_.empty() || !core_.idle(); });
      if (stop_) break;
      messages.swap(mailbox_);
    }
    for (Message& message : messages) {
      if (message.sink) {
        core_.Start(message.id, std::move(message.request), message.sink, message.submitted_s);
      } else {
        core_.Cancel(message.id);
      }
    }
    messages.clear();
    core_.RunStep();
  }
  // Nobody may be left waiting for an answer.
  for (Message& message : mailbox_) {
    if (message.sink) {
      core_.Start(message.id, std::move(message.request), message.sink, message.submitted_s);
    }
  }
  core_.CancelAll();
}

}  // namespace nibble
