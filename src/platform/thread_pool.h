#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "base/math.h"
#include "platform/numa.h"

namespace nibble {

// A fixed set of threads that run one function together, then wait. The caller is thread 0, so a
// pool of 1 starts no thread. Waiting threads spin for some microseconds, then park (an idle pool
// uses no processor time). All threads share the caller's rounding mode and keep denormals on.
//
// Only one Run at a time, from one thread. Results must not depend on size(): work is split by
// output elements, never by the reduction.
class ThreadPool {
 public:
  // threads >= 1, the caller included. Throws std::system_error when the system gives no more
  // threads; those that were started have ended by then. With nodes, each worker keeps to the
  // processors of one (NumaNodeOfThread); the caller, whose thread is not the pool's, does not.
  explicit ThreadPool(int threads, std::span<const NumaNode> nodes = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return size_; }
  // As given: memory that all threads read should lie on them in turn (InterleaveMemory).
  std::span<const NumaNode> nodes() const { return nodes_; }

  // Runs fn(thread) for thread = 0 … size()-1 and returns when all have returned. fn must not
  // throw.
  template <class F>
  void Run(F&& fn) {
    using Fn = std::remove_reference_t<F>;
    RunErased([](void* context, int thread) { (*static_cast<Fn*>(context))(thread); },
              const_cast<void*>(static_cast<const void*>(&fn)));
  }

  // fn(begin, end, thread): contiguous shares of [0, count), each a multiple of grain but the last.
  template <class F>
  void ParallelFor(int64_t count, int64_t grain, F&& fn) {
    const int64_t chunks = CeilDiv(count, grain);
    if (size_ == 1 || chunks <= 1) {
      if (count > 0) fn(int64_t{0}, count, 0);
      return;
    }
    Run([&](int thread) {
      const int64_t begin = chunks * thread / size_ * grain;
      const int64_t last = chunks * (thread + 1) / size_ * grain;
      const int64_t end = last < count ? last : count;
      if (begin < end) fn(begin, end, thread);
    });
  }

  // Inside Run: waits until every thread of the pool has come here.
  void Barrier(int thread);

 private:
  using Erased = void (*)(void* context, int thread);
  void RunErased(Erased fn, void* context);

  struct State;
  int size_;
  std::vector<NumaNode> nodes_;
  std::unique_ptr<State> state_;
};

}  // namespace nibble
