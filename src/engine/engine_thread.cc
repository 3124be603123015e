#include "engine/engine_thread.h"

#include <algorithm>
#include <utility>

#include "platform/clock.h"

namespace nibble {

EngineThread::EngineThread(EngineCore& core) : core_(core) {
  Publish();
  thread_ = std::thread([this] { Loop(); });
}

void EngineThread::Stop() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

Result<RequestId> EngineThread::Submit(Request request, std::shared_ptr<EventSink> sink) {
  NIBBLE_TRY(auto accepted, core_.Accept(std::move(request)));
  const int choices = accepted->choices;
  RequestId id;
  {
    const std::scoped_lock lock(mutex_);
    const int most = core_.scheduler().limits().max_queue;
    if (stop_) return Fail(ErrorKind::kCancelled, "the engine is shutting down");
    if (choices > most - waiting_) {
      return Fail(ErrorKind::kNoRoom, "the queue is full: {} answers wait, at most {} may",
                  waiting_, most);
    }
    waiting_ += choices;
    id = RequestId{next_id_++};
    mailbox_.push_back({id, std::move(accepted), std::move(sink), MonotonicSeconds()});
  }
  wake_.notify_one();
  return id;
}

void EngineThread::Cancel(RequestId id) {
  {
    const std::scoped_lock lock(mutex_);
    mailbox_.push_back({.id = id, .request = nullptr, .sink = nullptr});
  }
  wake_.notify_one();
}

void EngineThread::CloseArrivals() {
  {
    const std::scoped_lock lock(mutex_);
    closed_ = true;
  }
  wake_.notify_one();
}

EngineStats EngineThread::Stats() const {
  const std::scoped_lock lock(mutex_);
  return stats_;
}

void EngineThread::Publish() {
  const Scheduler& scheduler = core_.scheduler();
  const int peak = stats_.kv_pages_peak;
  waiting_ = scheduler.waiting();
  for (const Message& message : mailbox_)
    waiting_ += message.request ? message.request->choices : 0;
  stats_ = {.waiting = waiting_,
            .running = scheduler.running(),
            .steps = scheduler.counters().steps,
            .rows = scheduler.counters().rows,
            .preemptions = scheduler.counters().preemptions(),
            .preemptions_for_answers = scheduler.counters().preemptions_for_answers,
            .preemptions_for_prompts = scheduler.counters().preemptions_for_prompts,
            .sampled = core_.totals().sampled,
            .speculates = core_.options().drafter != nullptr,
            .drafts = core_.totals().drafts,
            .drafted = core_.totals().drafted,
            .accepted_at = {core_.totals().accepted_at.begin(), core_.totals().accepted_at.end()},
            .step_s = core_.totals().seconds,
            .weight_bytes = core_.totals().weight_bytes,
            .kv_bytes = core_.totals().kv_bytes,
            .prefix_hits = scheduler.counters().prefix_hits,
            .cached_tokens = scheduler.counters().cached_tokens};
  for (const int64_t at : stats_.accepted_at) stats_.accepted += at;
  for (int g = 0; g < scheduler.book().groups(); ++g) {
    const PagePool& pages = scheduler.book().pool(g);
    const PagePool& open = scheduler.book().open_pool(g);
    stats_.kv_pages_used += pages.used_pages() + open.used_pages();
    stats_.kv_pages_total += pages.size() + open.size();
    stats_.kv_pages_cached += pages.evictable_pages();
    stats_.kv_pages_touched.push_back({pages.touched(), open.touched()});
  }
  if (core_.options().drafter != nullptr) {
    stats_.draft_pages_touched = core_.options().drafter->Touched();
  }
  stats_.kv_pages_peak = std::max(peak, stats_.kv_pages_used);
}

void EngineThread::Loop() {
  std::vector<Message> messages;
  while (true) {
    bool closed = false;
    {
      std::unique_lock lock(mutex_);
      Publish();
      wake_.wait(lock, [&] { return stop_ || closed_ || !mailbox_.empty() || core_.runnable(); });
      if (stop_) break;
      messages.swap(mailbox_);
      closed = std::exchange(closed_, false);
    }
    for (const Message& message : messages) {
      if (message.request) {
        core_.Start(message.id, message.request, message.sink, message.submitted_s);
      } else {
        core_.Cancel(message.id);
      }
    }
    messages.clear();
    if (closed) core_.CloseArrivals();
    core_.RunStep();
  }
  // Nobody may be left waiting for an answer. Sinks that call Cancel put it into the mailbox.
  messages.clear();
  {
    const std::scoped_lock lock(mutex_);
    messages.swap(mailbox_);
  }
  for (const Message& message : messages) {
    if (message.request) {
      core_.Start(message.id, message.request, message.sink, message.submitted_s);
    }
  }
  core_.CancelAll();
}

}  // namespace nibble
