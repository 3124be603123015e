#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/engine_core.h"

namespace nibble {

// Drives an EngineCore on a thread of its own. Messages wait in a mailbox that is emptied between
// steps; an idle thread sleeps.
class EngineThread {
 public:
  // The core and all that it refers to outlive this.
  explicit EngineThread(EngineCore& core);
  ~EngineThread() { Stop(); }
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  // As in Engine; any thread.
  Result<RequestId> Submit(Request request, std::shared_ptr<EventSink> sink);
  void Cancel(RequestId id);
  EngineStats Stats() const;
  void CloseArrivals();

  // Cancels what is unfinished and waits for the thread. Requests that come later are refused.
  // Sinks may call Cancel and Stats meanwhile.
  void Stop();

 private:
  struct Message {
    RequestId id;
    std::shared_ptr<const AcceptedRequest> request;  // null: a cancellation
    std::shared_ptr<EventSink> sink;
    double submitted_s = 0;
  };
  void Loop();
  void Publish();  // with mutex_ held

  EngineCore& core_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Message> mailbox_;
  int waiting_ = 0;  // sequences in the mailbox or in the scheduler's queue
  uint64_t next_id_ = 1;
  bool stop_ = false;
  bool closed_ = false;  // arrivals; the core has not been told yet
  EngineStats stats_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace nibble
