// One plan at 256 running and 10,000 waiting requests, and its commit.
#include <benchmark/benchmark.h>

#include "base/check.h"
#include "sched/scheduler.h"

namespace nibble {
namespace {

constexpr int kRunning = 256;
constexpr int kWaiting = 10'000;

std::vector<TokenId> Prompt(int n, int own) {
  std::vector<TokenId> prompt;
  for (int i = 0; i < n; ++i) prompt.emplace_back(i < n / 2 ? i : own * 7919 + i);
  return prompt;
}

// Requests of `context` tokens, half of them a common prefix. The pages are those of the running
// ones, so that every plan looks at the queue and finds that nobody in it has room.
Scheduler Make(Policy policy, int context) {
  const int own = context / 2 / kPageTokens;
  const PoolSpec pools[] = {{.pages = own + kRunning * (own + 1)},
                            {.pages = kRunning * 40, .window = 1024}};
  const StepPrice price({{1, 0.030}, {8, 0.032}, {32, 0.050}, {512, 0.6}}, 1e-8, 1e-5);
  Scheduler scheduler({.max_rows = 512,
                       .max_running = kRunning + 1,
                       .max_queue = kWaiting + kRunning,
                       .policy = policy},
                      pools, {.prefix_cache = true}, price);
  for (int i = 0; i < kRunning + kWaiting; ++i) {
    NewSequence added{.id = RequestId{static_cast<uint64_t>(i) + 1},
                      .prompt = ShareTokens(Prompt(context, i)),
                      .max_positions = context + 2};
    NIBBLE_CHECK(scheduler.Add(std::move(added)).has_value());
  }
  return scheduler;
}

void BM_Plan(benchmark::State& state) {
  const int context = static_cast<int>(state.range(1));
  Scheduler scheduler = Make(static_cast<Policy>(state.range(0)), context);
  std::vector<RequestId> computed;  // prompts first; their answers begin together
  while (computed.size() < kRunning) {
    Step step = scheduler.Plan(1 << 20);
    NIBBLE_CHECK(!step.empty());
    for (const StepSpan& span : step.spans()) {
      if (span.ReachesEnd()) computed.push_back(span.sequence->id);
    }
    step.Commit();
  }
  for (const RequestId id : computed) scheduler.Append(id, TokenId{3});
  int64_t rows = 0;
  for (auto _ : state) {
    Step step = scheduler.Plan(1 << 20);
    benchmark::DoNotOptimize(step.rows());
    rows += step.rows();
    state.PauseTiming();
    step = Step();  // the same plan again
    state.ResumeTiming();
  }
  state.counters["rows"] = static_cast<double>(rows) / static_cast<double>(state.iterations());
  state.counters["running"] = scheduler.running();
  state.counters["waiting"] = scheduler.waiting();
}
BENCHMARK(BM_Plan)
    ->ArgsProduct({{0, 1, 2}, {1024, 8192}})
    ->ArgNames({"policy", "context"})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace nibble

BENCHMARK_MAIN();
