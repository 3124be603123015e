#pragma once

#include <cstddef>
#include <string_view>

#include "base/result.h"
#include "platform/memory.h"

namespace nibble {

class ThreadPool;

struct ReadRates {
  double best = 0;  // bytes per second of all threads together, over the rounds
  double median = 0;
  std::string_view form;  // of the loop
  size_t bytes = 0;       // of the buffer
};

// Reads a buffer of random bytes in large pages, as weights lie, with all threads of a pool, each
// its own part, which it touched first. The loop takes one word of every cache line and nothing
// else: one that does more is bound by itself. Which way of walking is fastest differs between
// processors, so that there are several (plain, prefetched, in streams); a probe keeps to the one
// that was fastest when it was made.
class ReadProbe {
 public:
  // Of memory, never of a cache: at least four times the last-level caches that this process can
  // reach, and doubled until that changes the rate no more, because a virtual machine may not tell
  // their size. kNoRoom where the smallest such buffer is more than a quarter of what is free.
  static Result<ReadProbe> OfMemory(ThreadPool& pool);
  // Of whatever holds a buffer of so many bytes.
  static Result<ReadProbe> OfSize(ThreadPool& pool, size_t bytes);

  // Bytes per second of one round: once through the buffer, or often where it is small.
  double Round() { return Read(form_); }
  // The same of the buffer's next 64 MiB or so, some milliseconds: a look at how memory is now.
  double Sample();
  // At least 15 rounds, more while they fit into `seconds`.
  ReadRates Measure(double seconds);

 private:
  explicit ReadProbe(ThreadPool& pool) : pool_(&pool) {}
  Status Fill(size_t bytes, size_t reserved);
  void ChooseForm();
  double Read(size_t form);
  double Read(size_t form, size_t begin, size_t bytes, size_t passes);

  ThreadPool* pool_;
  AlignedBuffer buffer_;
  size_t share_ = 0;  // bytes of each thread
  size_t form_ = 0;
  size_t next_ = 0;  // where Sample goes on, in each thread's part
};

// The best rate of a probe of memory in about so many seconds.
Result<double> ProbeReadBandwidth(ThreadPool& pool, double seconds = 1.0);

}  // namespace nibble
