#include "server/workers.h"

#include <fmt/format.h>

#include <exception>

namespace nibble::server {

Workers::Workers(int threads) {
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

void Workers::Add(std::function<void()> work) {
  {
    const std::scoped_lock lock(mutex_);
    queue_.push_back(std::move(work));
  }
  ready_.notify_one();
}

void Workers::Loop() {
  while (true) {
    std::function<void()> work;
    {
      std::unique_lock lock(mutex_);
      ready_.wait(lock, [&] { return stop_ || !queue_.empty(); });
      if (stop_) return;
      work = std::move(queue_.front());
      queue_.pop_front();
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
