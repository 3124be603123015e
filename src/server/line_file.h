#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "base/result.h"

namespace nibble::server {

// A file of lines that a thread of its own writes: whoever adds one never waits for a disk. What a
// disk cannot take in time is dropped and counted.
class LineFile {
 public:
  // Replaces what was there.
  static Result<std::unique_ptr<LineFile>> Create(const std::string& path);
  ~LineFile();  // all lines are written
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  // A line without its end. Any thread.
  void Add(std::string_view line);
  uint64_t dropped() const { return dropped_; }

 private:
  LineFile(std::FILE* file, std::string path);
  void Loop();

  std::FILE* file_;
  std::string path_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::string pending_;
  bool stop_ = false;
  std::atomic<uint64_t> dropped_ = 0;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace nibble::server
