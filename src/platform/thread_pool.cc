#include "platform/thread_pool.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace nibble {
namespace {

constexpr size_t kCacheLine = 64;

// Of a barrier's words (State::arrivals).
constexpr uint32_t kRound = 1U << 16;
constexpr int kSmallPool = 8;

// How long a waiting thread stays awake, in three stages.
// Alone: looks and pauses, makes no system call. Bridges the short serial parts of a step.
constexpr auto kAlone = std::chrono::microseconds(50);
// The same on a processor that others want too: the awaited thread may be one of them.
constexpr auto kAloneContended = std::chrono::microseconds(3);
// Then it offers its processor at every look, until it parks. Long enough for sampling, short
// enough that an idle pool is parked before anybody notices.
constexpr auto kAwake = std::chrono::microseconds(150);
// An offer that nobody takes returns at once (some 0.3 µs); one that is taken costs the taker's
// time.
constexpr auto kTaken = std::chrono::microseconds(4);
constexpr int kPausesPerClockRead = 32;
constexpr int kYieldsBeforePark = 4;

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

// Rounding, exception masks and denormal mode of the floating-point unit, without its status flags.
struct FloatMode {
  uint64_t bits = 0;

  static FloatMode OfThisThread() {
#if defined(__x86_64__)
    constexpr uint64_t kStatusFlags = 0x3f;
    constexpr uint64_t kFlushDenormals = 0x8040;  // FTZ and DAZ
    return {_mm_getcsr() & ~(kStatusFlags | kFlushDenormals)};
#elif defined(__aarch64__)
    constexpr uint64_t kFlushDenormals = uint64_t{1} << 24;
    uint64_t fpcr;
    asm volatile("mrs %0, fpcr" : "=r"(fpcr));
    return {fpcr & ~kFlushDenormals};
#else
    return {};
#endif
  }

  void ApplyToThisThread() const {
#if defined(__x86_64__)
    _mm_setcsr(static_cast<unsigned>(bits));
#elif defined(__aarch64__)
    asm volatile("msr fpcr, %0" ::"r"(bits));
#endif
  }
};

// One thread's waiting. Whether others want its processor is learnt from the offers: a machine
// that is idle now sees none of them in the 50 µs before, a busy one loses 3 µs to a wait and not a
// slice.
class Waiter {
 public:
  // Waits until word no longer holds old: spins, then yields, then parks in the kernel. Returns
  // with everything visible that was written before the change.
  void WaitWhile(const std::atomic<uint32_t>& word, uint32_t old, bool spin) {
    if (spin && StayAwake(word, old)) return;
    for (int i = 0; i < kYieldsBeforePark; ++i) {
      if (word.load(std::memory_order_acquire) != old) return;
      std::this_thread::yield();
    }
    word.wait(old, std::memory_order_acquire);
  }

 private:
  using Clock = std::chrono::steady_clock;

  // Whether the word changed before it was time to park.
  bool StayAwake(const std::atomic<uint32_t>& word, uint32_t old) {
    const auto start = Clock::now();
    for (auto now = start; now - start < kAwake; now = Clock::now()) {
      if (now - start >= (contended_ ? kAloneContended : kAlone)) {
        std::this_thread::yield();
        contended_ = Clock::now() - now >= kTaken;
      }
      for (int i = 0; i < kPausesPerClockRead; ++i) {
        if (word.load(std::memory_order_acquire) != old) return true;
        Pause();
      }
    }
    return false;
  }

  bool contended_ = false;
};

}  // namespace

struct ThreadPool::State {
  // Changed by the caller to start a region; read by all workers.
  alignas(kCacheLine) std::atomic<uint32_t> generation{0};
  Erased fn = nullptr;
  void* context = nullptr;
  FloatMode float_mode;
  uint32_t all_finished = 0;  // what `finished` will be when all workers are done
  bool stop = false;

  // Regions that workers have finished. It only grows: to reset it would move its cache line once
  // more in every region.
  alignas(kCacheLine) std::atomic<uint32_t> finished{0};

  // Barrier: the round in the upper half, who has arrived in the lower; the last to arrive starts
  // the next round. Waiting on the word that counts saves the round's own cache line a trip (175 ns
  // instead of 320 for two threads).
  alignas(kCacheLine) std::atomic<uint32_t> arrivals{0};
  // In large pools the waiting would slow down the counting: they wait on this copy of the round.
  alignas(kCacheLine) std::atomic<uint32_t> round{0};

  bool spin = true;
  struct alignas(kCacheLine) PaddedWaiter {
    Waiter waiter;
  };
  std::vector<PaddedWaiter> waiters;  // by thread
  std::vector<std::thread> workers;

  void WaitWhile(int thread, const std::atomic<uint32_t>& word, uint32_t old) {
    waiters[static_cast<size_t>(thread)].waiter.WaitWhile(word, old, spin);
  }

  // Also when the pool's constructor gives up half way.
  ~State() {
    stop = true;
    generation.fetch_add(1, std::memory_order_release);
    generation.notify_all();
    for (std::thread& worker : workers) worker.join();
  }

  void WorkerMain(int thread) {
    uint32_t seen = 0;
    while (true) {
      WaitWhile(thread, generation, seen);
      ++seen;  // regions are never skipped: the caller waits for every worker
      if (stop) return;
      float_mode.ApplyToThisThread();
      const uint32_t all = all_finished;  // the caller changes it once this worker has finished
      fn(context, thread);
      if (finished.fetch_add(1, std::memory_order_acq_rel) + 1 == all) finished.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int threads, std::span<const NumaNode> nodes)
    : size_(threads), nodes_(nodes.begin(), nodes.end()), state_(std::make_unique<State>()) {
  NIBBLE_CHECK(threads >= 1 && threads < static_cast<int>(kRound));
  // With fewer processors than threads, a spinning thread keeps the awaited one from running.
  state_->spin = std::thread::hardware_concurrency() >= static_cast<unsigned>(threads);
  state_->waiters.resize(static_cast<size_t>(threads));
  state_->workers.reserve(static_cast<size_t>(threads - 1));
  for (int i = 1; i < threads; ++i) {
    std::vector<int> cpus;
    if (!nodes.empty()) cpus = nodes[NumaNodeOfThread(nodes, i, threads)].cpus;
    state_->workers.emplace_back([state = state_.get(), i, cpus = std::move(cpus)] {
      // Where the processors have been taken from this process, it runs where it may.
      if (!cpus.empty()) {
        [[maybe_unused]] const auto pinned = PinThisThread(cpus);
      }
      state->WorkerMain(i);
    });
  }
}

ThreadPool::~ThreadPool() = default;

void ThreadPool::RunErased(Erased fn, void* context) {
  State& state = *state_;
  state.float_mode = FloatMode::OfThisThread();
  state.float_mode.ApplyToThisThread();
  if (size_ == 1) return fn(context, 0);

  state.fn = fn;
  state.context = context;
  const uint32_t all = state.all_finished += static_cast<uint32_t>(size_ - 1);
  state.generation.fetch_add(1, std::memory_order_release);
  state.generation.notify_all();
  fn(context, 0);
  for (uint32_t seen = state.finished.load(std::memory_order_acquire); seen != all;
       seen = state.finished.load(std::memory_order_acquire)) {
    state.WaitWhile(0, state.finished, seen);
  }
}

void ThreadPool::Barrier(int thread) {
  if (size_ == 1) return;
  State& state = *state_;
  const bool large = size_ > kSmallPool;
  const uint32_t arrival = state.arrivals.fetch_add(1, std::memory_order_acq_rel) + 1;
  const uint32_t round = arrival / kRound;
  std::atomic<uint32_t>& word = large ? state.round : state.arrivals;
  if (arrival % kRound == static_cast<uint32_t>(size_)) {
    state.arrivals.store((round + 1) * kRound, std::memory_order_release);
    if (large) state.round.store((round + 1) * kRound, std::memory_order_release);
    word.notify_all();
    return;
  }
  for (uint32_t seen = word.load(std::memory_order_acquire); seen / kRound == round;
       seen = word.load(std::memory_order_acquire)) {
    state.WaitWhile(thread, word, seen);
  }
}

}  // namespace nibble
