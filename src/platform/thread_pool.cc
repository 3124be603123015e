#include "platform/thread_pool.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstddef>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "platform/this_thread.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace nibble {
namespace {

constexpr size_t kCacheLine = 64;

// Of a barrier's words (State::arrivals).
constexpr uint32_t kRound = 1U << 16;
constexpr int kSmallPool = 8;

// How long a waiting thread looks before it sleeps in the kernel: long enough for the serial parts
// of a step and for sampling, short enough that an idle pool sleeps before anybody notices and that
// one beside busy programs, whose awaited thread may be off its processor for milliseconds, loses
// little.
constexpr auto kAwake = std::chrono::microseconds(150);
constexpr int kPausesPerClockRead = 32;

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

// A word that threads wait on. The kernel is called only where a thread sleeps. sched_yield is
// never called, nor std::atomic::wait, which calls it: since Linux 6.17 a thread that yields gives
// its whole slice away, and a pool beside busy programs crawled.
class alignas(kCacheLine) WaitWord {
 public:
  uint32_t Load() const { return word_.load(std::memory_order_acquire); }

  // Adds and wakes all; returns the new value.
  uint32_t AddAndWake(uint32_t n) {
    const uint32_t now = word_.fetch_add(n, std::memory_order_seq_cst) + n;
    WakeAll();
    return now;
  }
  uint32_t Add(uint32_t n) { return word_.fetch_add(n, std::memory_order_seq_cst) + n; }
  void StoreAndWake(uint32_t value) {
    word_.store(value, std::memory_order_seq_cst);
    WakeAll();
  }

  // A thread that goes to sleep is counted before the kernel compares the word, and whoever changes
  // the word looks at the count afterwards, all in one order: no wake-up is lost.
  void WakeAll() {
    if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
    syscall(SYS_futex, Address(), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  }

  // Looks for some microseconds: whether the word no longer holds old. Then, and after SleepWhile,
  // all is visible that was written before the change.
  bool ChangesSoon(uint32_t old) const {
    for (const auto end = Clock::now() + kAwake; Clock::now() < end;) {
      for (int i = 0; i < kPausesPerClockRead; ++i) {
        if (Load() != old) return true;
        Pause();
      }
    }
    return false;
  }

  void SleepWhile(uint32_t old) {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    while (Load() == old) {
      syscall(SYS_futex, Address(), FUTEX_WAIT_PRIVATE, old, nullptr, nullptr, 0);
    }
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  using Clock = std::chrono::steady_clock;

  // The kernel's futex is the atomic's own 32 bits.
  uint32_t* Address() { return reinterpret_cast<uint32_t*>(&word_); }
  static_assert(sizeof(std::atomic<uint32_t>) == 4 && std::atomic<uint32_t>::is_always_lock_free);

  std::atomic<uint32_t> word_{0};
  std::atomic<uint32_t> sleepers_{0};
};

}  // namespace

struct ThreadPool::State {
  // Changed by the caller to start a region; read by all workers.
  WaitWord generation;
  Erased fn = nullptr;
  void* context = nullptr;
  FloatMode float_mode;
  uint32_t all_finished = 0;  // what `finished` will be when all workers are done
  bool stop = false;

  // Regions that workers have finished. It only grows: to reset it would move its cache line once
  // more in every region.
  WaitWord finished;

  // Barrier: the round in the upper half, who has arrived in the lower; the last to arrive starts
  // the next round. Waiting on the word that counts saves the round's own cache line a trip (175 ns
  // instead of 320 for two threads).
  WaitWord arrivals;
  // In large pools the waiting would slow down the counting: they wait on this copy of the round.
  WaitWord round;

  bool spin = true;
  std::vector<std::thread> workers;

  struct alignas(kCacheLine) Place {
    std::atomic<int> processor{-1};  // where the thread ran when it last looked
    bool crowded = false;            // with another of the pool's, and cannot leave; its own only
  };
  std::vector<Place> places;

  void Arrive(int thread) {
    std::atomic<int>& mine = places[static_cast<size_t>(thread)].processor;
    const int processor = ProcessorOfThisThread();
    if (mine.load(std::memory_order_relaxed) != processor) {
      mine.store(processor, std::memory_order_relaxed);
    }
  }

  // Whether one of the first `count` threads was where this one is.
  bool Meets(int thread, int count) {
    Arrive(thread);
    const auto at = [&](int i) {
      return places[static_cast<size_t>(i)].processor.load(std::memory_order_relaxed);
    };
    bool meets = false;
    for (int i = 0; i < count; ++i) meets |= i != thread && at(i) == at(thread);
    return meets;
  }

  // Beside busy programs Linux may leave two threads of the pool on one processor for seconds:
  // there they only wait for each other (0.12 ms a step became 8.5). The later one moves.
  void LeaveSharedProcessor(int thread) {
    if (!Meets(thread, thread)) return;
    std::vector<int> taken;
    for (const Place& place : places) {
      const int processor = place.processor.load(std::memory_order_relaxed);
      if (processor >= 0) taken.push_back(processor);
    }
    MoveOffProcessors(taken);
  }

  void Wait(int thread, WaitWord& word, uint32_t old) {
    const auto size = static_cast<int>(places.size());
    bool& crowded = places[static_cast<size_t>(thread)].crowded;
    crowded = crowded && Meets(thread, size);
    if (spin && !crowded) {
      if (word.ChangesSoon(old)) return;
      LeaveSharedProcessor(thread);
      crowded = Meets(thread, size);
    }
    word.SleepWhile(old);
  }

  // Also when the pool's constructor gives up half way.
  ~State() {
    stop = true;
    generation.AddAndWake(1);
    for (std::thread& worker : workers) worker.join();
  }

  void WorkerMain(int thread) {
    uint32_t seen = 0;
    // Beside busy programs of the same priority, a step's hundred waits each cost one of their
    // slices (milliseconds) unless the pool's own are short.
    RequestTimeSlice(kComputeSliceNs);
    while (true) {
      Wait(thread, generation, seen);
      ++seen;  // regions are never skipped: the caller waits for every worker
      if (stop) return;
      float_mode.ApplyToThisThread();
      const uint32_t all = all_finished;  // the caller changes it once this worker has finished
      Arrive(thread);
      fn(context, thread);
      if (finished.Add(1) == all) finished.WakeAll();
    }
  }
};

ThreadPool::ThreadPool(int threads, std::span<const NumaNode> nodes)
    : size_(threads), nodes_(nodes.begin(), nodes.end()), state_(std::make_unique<State>()) {
  NIBBLE_CHECK(threads >= 1 && threads < static_cast<int>(kRound));
  // With fewer processors than threads, a spinning thread keeps the awaited one from running.
  state_->spin = std::thread::hardware_concurrency() >= static_cast<unsigned>(threads);
  state_->places = std::vector<State::Place>(static_cast<size_t>(threads));
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
  // Of the calling thread, which may change.
  thread_local const bool asked = (RequestTimeSlice(kComputeSliceNs), true);
  static_cast<void>(asked);

  state.fn = fn;
  state.context = context;
  const uint32_t all = state.all_finished += static_cast<uint32_t>(size_ - 1);
  state.Arrive(0);
  state.generation.AddAndWake(1);
  fn(context, 0);
  for (uint32_t seen = state.finished.Load(); seen != all; seen = state.finished.Load()) {
    state.Wait(0, state.finished, seen);
  }
}

void ThreadPool::Barrier(int thread) {
  if (size_ == 1) return;
  State& state = *state_;
  const bool large = size_ > kSmallPool;
  const uint32_t arrival = state.arrivals.Add(1);
  const uint32_t round = arrival / kRound;
  WaitWord& word = large ? state.round : state.arrivals;
  if (arrival % kRound == static_cast<uint32_t>(size_)) {
    const uint32_t next = (round + 1) * kRound;
    state.arrivals.StoreAndWake(next);
    if (large) state.round.StoreAndWake(next);
    return;
  }
  for (uint32_t seen = word.Load(); seen / kRound == round; seen = word.Load()) {
    state.Wait(thread, word, seen);
  }
}

}  // namespace nibble
