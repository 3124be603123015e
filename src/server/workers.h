#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace nibble::server {

// Threads for what may take longer than the I/O thread can wait: parsing, templates, tokens.
class Workers {
 public:
  explicit Workers(int threads);
  ~Workers();  // what is queued is dropped
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  void Add(std::function<void()> work);

 private:
  void Loop();

  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> queue_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace nibble::server
