#include "platform/thread_pool.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

#include "base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace nibble {
namespace {

constexpr size_t kCacheLine = 64;

// Long enough to bridge the serial parts between two regions of a step (sampling included), short
// enough that an idle pool is parked before anybody notices.
constexpr auto kSpinTime = std::chrono::microseconds(150);
// From then on a spinning thread offers its processor at every look: on a busy machine the thread
// it waits for may have been put on the same one, and each region would take two whole spins.
constexpr auto kSpinAlone = std::chrono::microseconds(3);
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

// Waits until word no longer holds old: spins, then yields, then parks in the kernel. Returns with
// everything visible that was written before the change.
void WaitWhile(const std::atomic<uint32_t>& word, uint32_t old, bool spin) {
  if (spin) {
    const auto start = std::chrono::steady_clock::now();
    for (auto now = start; now - start < kSpinTime; now = std::chrono::steady_clock::now()) {
      if (now - start >= kSpinAlone) std::this_thread::yield();
      for (int i = 0; i < kPausesPerClockRead; ++i) {
        if (word.load(std::memory_order_acquire) != old) return;
        Pause();
      }
    }
  }
  for (int i = 0; i < kYieldsBeforePark; ++i) {
    if (word.load(std::memory_order_acquire) != old) return;
    std::this_thread::yield();
  }
  word.wait(old, std::memory_order_acquire);
}

}  // namespace

struct ThreadPool::State {
  // Changed by the caller to start a region; read by all workers.
  alignas(kCacheLine) std::atomic<uint32_t> generation{0};
  Erased fn = nullptr;
  void* context = nullptr;
  FloatMode float_mode;
  bool stop = false;

  // Workers that have not yet finished the region.
  alignas(kCacheLine) std::atomic<uint32_t> running{0};

  // Sense-reversing barrier: the last to arrive turns the phase.
  alignas(kCacheLine) std::atomic<uint32_t> arrived{0};
  alignas(kCacheLine) std::atomic<uint32_t> phase{0};

  bool spin = true;
  std::vector<std::thread> workers;

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
      WaitWhile(generation, seen, spin);
      ++seen;  // regions are never skipped: the caller waits for every worker
      if (stop) return;
      float_mode.ApplyToThisThread();
      fn(context, thread);
      if (running.fetch_sub(1, std::memory_order_acq_rel) == 1) running.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int threads) : size_(threads), state_(std::make_unique<State>()) {
  NIBBLE_CHECK(threads >= 1);
  // With fewer processors than threads, a spinning thread keeps the awaited one from running.
  state_->spin = std::thread::hardware_concurrency() >= static_cast<unsigned>(threads);
  state_->workers.reserve(static_cast<size_t>(threads - 1));
  for (int i = 1; i < threads; ++i) {
    state_->workers.emplace_back([state = state_.get(), i] { state->WorkerMain(i); });
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
  state.running.store(static_cast<uint32_t>(size_ - 1), std::memory_order_relaxed);
  state.generation.fetch_add(1, std::memory_order_release);
  state.generation.notify_all();
  fn(context, 0);
  for (uint32_t left = state.running.load(std::memory_order_acquire); left != 0;
       left = state.running.load(std::memory_order_acquire)) {
    WaitWhile(state.running, left, state.spin);
  }
}

void ThreadPool::Barrier(int) {
  if (size_ == 1) return;
  State& state = *state_;
  const uint32_t phase = state.phase.load(std::memory_order_acquire);
  if (state.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(size_)) {
    state.arrived.store(0, std::memory_order_relaxed);
    state.phase.fetch_add(1, std::memory_order_release);
    state.phase.notify_all();
    return;
  }
  while (state.phase.load(std::memory_order_acquire) == phase) {
    WaitWhile(state.phase, phase, state.spin);
  }
}

}  // namespace nibble
