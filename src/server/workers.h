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

  // Of two threads and more one is kept for work that is not long: what takes seconds makes only
  // its like wait. Each kind runs in the order of its arrival.
  void Add(std::function<void()> work, bool is_long = false);

 private:
  using Queue = std::deque<std::function<void()>>;
  void Loop();
  Queue* Next();  // null: nothing that may be begun

  const int most_long_;
  std::mutex mutex_;
  std::condition_variable ready_;
  Queue queue_, long_queue_;
  int long_running_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace nibble::server
