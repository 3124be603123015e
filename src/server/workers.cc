#include "server/workers.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "platform/this_thread.h"

namespace nibble::server {

Workers::Workers(int threads) : most_long_(std::max(1, threads - 1)) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Loop(); });
}

Workers::~Workers() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  ready_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Workers::Add(std::function<void()> work, bool is_long) {
  {
    const std::scoped_lock lock(mutex_);
    (is_long ? long_queue_ : queue_).push_back(std::move(work));
  }
  ready_.notify_one();
}

Workers::Queue* Workers::Next() {
  if (!queue_.empty()) return &queue_;
  return long_running_ < most_long_ && !long_queue_.empty() ? &long_queue_ : nullptr;
}

void Workers::Loop() {
  RequestTimeSlice(kShortSliceNs);
  bool ran_long = false;
  while (true) {
    std::function<void()> work;
    {
      std::unique_lock lock(mutex_);
      if (ran_long) --long_running_;
      Queue* next = nullptr;
      ready_.wait(lock, [&] { return stop_ || (next = Next()) != nullptr; });
      if (stop_) return;
      ran_long = next == &long_queue_;
      if (ran_long) ++long_running_;
      work = std::move(next->front());
      next->pop_front();
    }
    try {
      work();
    } catch (const std::exception& error) {
      // No memory for this one; its responder tells the client when it is destroyed.
      fmt::print(stderr, "nibble: a request failed: {}\n", error.what());
    }
  }
}

}  // namespace nibble::server
