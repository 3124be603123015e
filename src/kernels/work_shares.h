#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

namespace nibble {

// Units of work [0, count) for the threads of one parallel region. Each thread has a contiguous
// share, from the front: its reads are one ascending stream, which the processor's prefetcher
// follows, and the same from step to step. A thread that is done takes from the back of others'.
class WorkShares {
 public:
  WorkShares(int count, int threads) : shares_(std::min(threads, kMaxShares)) {
    for (int i = 0; i < shares_; ++i) {
      const auto begin = static_cast<uint32_t>(int64_t{count} * i / shares_);
      const auto end = static_cast<uint32_t>(int64_t{count} * (i + 1) / shares_);
      ranges_[static_cast<size_t>(i)].value.store(Pack(begin, end), std::memory_order_relaxed);
    }
  }

  // The next unit for a thread, or -1 when all are taken.
  int Take(int thread) {
    const int own = thread % shares_;
    int unit = TakeFrom(own, true);
    for (int i = 1; unit < 0 && i < shares_; ++i) unit = TakeFrom((own + i) % shares_, false);
    return unit;
  }

 private:
  static constexpr int kMaxShares = 64;

  static uint64_t Pack(uint32_t begin, uint32_t end) { return uint64_t{begin} << 32 | end; }

  int TakeFrom(int share, bool front) {
    std::atomic<uint64_t>& range = ranges_[static_cast<size_t>(share)].value;
    uint64_t old = range.load(std::memory_order_relaxed);
    while (true) {
      const auto begin = static_cast<uint32_t>(old >> 32);
      const auto end = static_cast<uint32_t>(old);
      if (begin >= end) return -1;
      const uint64_t left = front ? Pack(begin + 1, end) : Pack(begin, end - 1);
      if (range.compare_exchange_weak(old, left, std::memory_order_relaxed)) {
        return static_cast<int>(front ? begin : end - 1);
      }
    }
  }

  struct alignas(64) Range {  // a cache line each
    std::atomic<uint64_t> value;
  };
  int shares_;
  std::array<Range, kMaxShares> ranges_;
};

}  // namespace nibble
