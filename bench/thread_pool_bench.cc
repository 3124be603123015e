// What a parallel region and a barrier cost: medians over single ones, as a step of a model meets
// them.
//   thread_pool_bench --benchmark_filter=barrier
// region/gap: the caller computes alone for so long between two regions (sampling does). one_cpu:
// all threads on one processor, as on a machine that others use too. idle: processor time that a
// waiting pool uses, in seconds per second.
#include "platform/thread_pool.h"

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "bench/run_benchmarks.h"
#include "platform/clock.h"
#include "platform/cpu.h"

namespace nibble {
namespace {

void Report(benchmark::State& state, std::vector<double>& times) {
  std::ranges::sort(times);
  const auto at = [&](double share) {
    return 1e9 * times[static_cast<size_t>(share * static_cast<double>(times.size() - 1))];
  };
  state.counters["p10_ns"] = at(0.1);
  state.counters["median_ns"] = at(0.5);
  state.counters["p90_ns"] = at(0.9);
  state.counters["p99_ns"] = at(0.99);
}

void SpinFor(double seconds) {
  const double until = MonotonicSeconds() + seconds;
  while (MonotonicSeconds() < until) {
  }
}

void Regions(benchmark::State& state, int threads, double gap) {
  ThreadPool pool(threads);
  std::vector<double> times;
  for (auto _ : state) {
    if (gap > 0) SpinFor(gap);
    const double started = MonotonicSeconds();
    pool.Run([](int) {});
    times.push_back(MonotonicSeconds() - started);
  }
  Report(state, times);
}

void Barriers(benchmark::State& state, int threads) {
  ThreadPool pool(threads);
  constexpr int kBarriers = 1000;
  std::vector<double> times;
  for (auto _ : state) {
    pool.Run([&](int thread) {
      for (int i = 0; i < kBarriers; ++i) {
        const double started = MonotonicSeconds();
        pool.Barrier(thread);
        if (thread == 0) times.push_back(MonotonicSeconds() - started);
      }
    });
  }
  Report(state, times);
}

// Runs the body on one processor; threads started within stay there.
template <class F>
void OnOneProcessor(F&& body) {
  cpu_set_t before;
  sched_getaffinity(0, sizeof before, &before);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &before)) continue;
    CPU_SET(cpu, &one);
    break;
  }
  // The pool counts processors when it starts: it must not know.
  body(one);
  sched_setaffinity(0, sizeof before, &before);
}

void RegionsOnOneProcessor(benchmark::State& state, int threads) {
  OnOneProcessor([&](const cpu_set_t& one) {
    ThreadPool pool(threads);
    pool.Run([&](int) { sched_setaffinity(0, sizeof one, &one); });
    std::vector<double> times;
    for (auto _ : state) {
      const double started = MonotonicSeconds();
      pool.Run([](int) { SpinFor(5e-6); });
      times.push_back(MonotonicSeconds() - started);
    }
    Report(state, times);
  });
}

// Another program's threads on every processor meanwhile.
void RegionsBesideOthers(benchmark::State& state, int threads, int others) {
  std::atomic<bool> stop = false;
  std::vector<std::thread> busy;
  for (int i = 0; i < others; ++i) {
    busy.emplace_back([&] {
      while (!stop) SpinFor(1e-4);
    });
  }
  {
    ThreadPool pool(threads);
    std::vector<double> times;
    for (auto _ : state) {
      const double started = MonotonicSeconds();
      pool.Run([](int) { SpinFor(20e-6); });
      times.push_back(MonotonicSeconds() - started);
    }
    Report(state, times);
  }
  stop = true;
  for (std::thread& thread : busy) thread.join();
}

double ProcessorSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void Idle(benchmark::State& state, int threads) {
  ThreadPool pool(threads);
  double used = 0;
  double passed = 0;
  for (auto _ : state) {
    pool.Run([](int) {});
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const double before = ProcessorSeconds();
    const double started = MonotonicSeconds();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    used += ProcessorSeconds() - before;
    passed += MonotonicSeconds() - started;
  }
  state.counters["cpu_share"] = used / passed;
}

void Register() {
  const int most = ReadTopology().threads;
  const auto add = [](const std::string& name, auto fn) {
    return benchmark::RegisterBenchmark(name.c_str(), fn)->UseRealTime();
  };
  for (const int threads : {2, most}) {
    add(fmt::format("barrier/threads_{}", threads),
        [=](benchmark::State& state) { Barriers(state, threads); });
    for (const double gap : {0.0, 1e-6, 5e-6, 20e-6, 60e-6, 120e-6, 400e-6}) {
      add(fmt::format("region/threads_{}/gap_us_{:.0f}", threads, gap * 1e6),
          [=](benchmark::State& state) { Regions(state, threads, gap); });
    }
    add(fmt::format("region_of_5us/one_cpu/threads_{}", threads),
        [=](benchmark::State& state) { RegionsOnOneProcessor(state, threads); });
    add(fmt::format("region_of_20us/beside_{}/threads_{}", most, threads),
        [=](benchmark::State& state) { RegionsBesideOthers(state, threads, most); });
    add(fmt::format("idle/threads_{}", threads), [=](benchmark::State& state) {
      Idle(state, threads);
    })->Iterations(2);
    if (most == 2) break;
  }
}

}  // namespace
}  // namespace nibble

int main(int argc, char** argv) {
  nibble::Register();
  return nibble::RunBenchmarks(argc, argv);
}
