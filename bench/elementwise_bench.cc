// Norms, gates, RoPE, exp, quantising and passes over a vocabulary, one thread, per instruction
// set.
//   elementwise_bench --benchmark_filter='silu/.*/2048'
// Names are kernel/instruction set/floats. GB/s counts every float (or code) that must be read and
// written once. of_cache is the share of what the fastest plain pass at that size moves (memcpy, or
// this processor's best y = x + y or maximum): the speed of the first-level cache at 576 and 2,048
// floats, of the second at 16,384 and of the next at 262,144.
#include "bench/run_benchmarks.h"
#include "kernels/elementwise.h"

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/check.h"
#include "kernels/activations.h"
#include "kernels/attention_kernels.h"
#include "kernels/float_kernels.h"
#include "kernels/kernel_table.h"
#include "kernels/matmul_kernels.h"
#include "kernels/sampling.h"
#include "platform/clock.h"
#include "platform/cpu.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

using Floats = std::vector<float>;
// y = op(a, b); all have n floats.
using Op =
    std::function<void(const KernelTable& kernels, const Floats& a, const Floats& b, Floats& y)>;

struct NamedOp {
  std::string name;
  double bytes;  // read and written for one float
  Op op;
};

Floats Pattern(int n, float scale) {
  Floats x(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) x[i] = scale * static_cast<float>((i * 7919 + 13) % 1009 - 504) / 504;
  return x;
}

KernelTable TableOf(Isa isa) {
  return {isa, &MatmulKernelsFor(isa), AttentionKernelsFor(isa), FloatKernelsFor(isa)};
}

int Size(const Floats& x) { return static_cast<int>(x.size()); }

double RateOf(double bytes, const std::function<void()>& pass) {
  const int passes = static_cast<int>((8 << 20) / bytes) + 1;
  double rate = 0;
  for (int round = 0; round < 20; ++round) {
    const double started = MonotonicSeconds();
    for (int i = 0; i < passes; ++i) pass();
    rate = std::max(rate, bytes * passes / (MonotonicSeconds() - started));
  }
  return rate;
}

// Bytes per second of the fastest plain pass over arrays of n floats, best of several rounds.
double CacheRate(int n) {
  static std::map<int, double> known;
  double& rate = known[n];
  if (rate > 0) return rate;
  const FloatKernels& best = *FloatKernelsFor(SupportedIsas().back());
  const Floats from = Pattern(n, 1);
  Floats to(from.size());
  const double bytes = static_cast<double>(from.size()) * sizeof(float);
  const auto copy = [&] {
    std::memcpy(to.data(), from.data(), from.size() * sizeof(float));
    benchmark::ClobberMemory();
  };
  const auto add = [&] { best.add(from.data(), n, to.data()); };
  const auto max = [&] { benchmark::DoNotOptimize(best.max(from.data(), n)); };
  rate = std::max({RateOf(2 * bytes, copy), RateOf(3 * bytes, add), RateOf(bytes, max)});
  return rate;
}

void Report(benchmark::State& state, double bytes, int n) {
  using benchmark::Counter;
  const double all = bytes * n * static_cast<double>(state.iterations());
  state.counters["GB/s"] = Counter(all * 1e-9, Counter::kIsRate);
  state.counters["of_cache"] = Counter(all / CacheRate(n), Counter::kIsRate);
}

void Run(benchmark::State& state, Isa isa, int n, const NamedOp& named) {
  const KernelTable kernels = TableOf(isa);
  const Floats a = Pattern(n, 4);
  const Floats b = Pattern(n, 1);
  Floats y = Pattern(n, 0.5F);
  for (auto _ : state) {
    named.op(kernels, a, b, y);
    benchmark::DoNotOptimize(y.data());
    benchmark::ClobberMemory();
  }
  Report(state, named.bytes, n);
}

void RunQuantise(benchmark::State& state, Isa isa, int n, ActNeeds needs) {
  const KernelTable kernels = TableOf(isa);
  ThreadPool pool(1);
  const Floats x = Pattern(n, 4);
  ActivationBlock block;
  NIBBLE_CHECK(block.Reserve(1, n, needs).has_value());
  for (auto _ : state) {
    block.Prepare(kernels, pool, DenseView(x.data(), 1, n), needs);
    benchmark::ClobberMemory();
  }
  Report(state, sizeof(float) + 1, n);  // scales and sums are little beside the codes
}

void RunTopK(benchmark::State& state, Isa isa, int n, int k) {
  const KernelTable kernels = TableOf(isa);
  const Floats logits = Pattern(n, 10);
  std::vector<int32_t> ids;
  for (auto _ : state) {
    SelectTopK(kernels, logits, k, ids);
    benchmark::DoNotOptimize(ids.data());
  }
  Report(state, sizeof(float), n);
}

NamedOp GateOp(const char* name, Gate gate) {
  return {name, 12, [gate](const KernelTable& k, const Floats& a, const Floats& b, Floats& y) {
            k.floats->gate[static_cast<size_t>(gate)](a.data(), b.data(), Size(a), y.data());
          }};
}

// Heads of 64 channels that share one position's rotations.
RopeRow RopeOf(const Floats& a, const Floats& b) {
  return {a.data(), b.data(), 32, Size(a) / 64, 64};
}

std::vector<NamedOp> RowOps() {
  return {
      {"rms_norm", 12,
       [](const KernelTable& k, const Floats& a, const Floats& b, Floats& y) {
         k.floats->rms_norm(a.data(), b.data(), 1e-5F, Size(a), y.data());
       }},
      {"layer_norm", 16,
       [](const KernelTable& k, const Floats& a, const Floats& b, Floats& y) {
         k.floats->layer_norm(a.data(), b.data(), b.data(), 1e-5F, Size(a), y.data());
       }},
      GateOp("silu", Gate::kSilu),
      GateOp("gelu_tanh", Gate::kGeluTanh),
      GateOp("gelu_erf", Gate::kGeluErf),
      {"add", 12,
       [](const KernelTable& k, const Floats& a, const Floats&, Floats& y) {
         k.floats->add(a.data(), Size(a), y.data());
       }},
      {"scale", 8,
       [](const KernelTable& k, const Floats&, const Floats&, Floats& y) {
         k.floats->scale(1.0F, Size(y), y.data());
       }},
      {"soft_cap", 8,
       [](const KernelTable& k, const Floats&, const Floats&, Floats& y) {
         k.floats->soft_cap(30, Size(y), y.data());
       }},
      {"rope_halves", 8,
       [](const KernelTable& k, const Floats& a, const Floats& b, Floats& y) {
         k.floats->rope_halves(RopeOf(a, b), y.data());
       }},
      {"rope_interleaved", 8,
       [](const KernelTable& k, const Floats& a, const Floats& b, Floats& y) {
         k.floats->rope_interleaved(RopeOf(a, b), y.data());
       }},
  };
}

// What samplers and the evaluation do with a row of logits.
std::vector<NamedOp> VocabularyOps() {
  return {
      {"max", 4,
       [](const KernelTable& k, const Floats& a, const Floats&, Floats& y) {
         y[0] = k.floats->max(a.data(), Size(a));
       }},
      {"sum_exp", 4,
       [](const KernelTable& k, const Floats& a, const Floats&, Floats& y) {
         y[0] = static_cast<float>(k.floats->sum_exp(a.data(), 4, Size(a)));
       }},
      {"arg_max", 4,
       [](const KernelTable& k, const Floats& a, const Floats&, Floats& y) {
         y[0] = static_cast<float>(ArgMaxLogit(k, a));
       }},
      {"log_sum_exp", 4,
       [](const KernelTable& k, const Floats& a, const Floats&, Floats& y) {
         y[0] = static_cast<float>(ComputeLogSumExp(k, a).log_sum_exp);
       }},
      {"collect", 4,
       [](const KernelTable& k, const Floats& a, const Floats&, Floats& y) {
         std::vector<int32_t> ids;
         CollectAtLeast(k, a, 3.99F, ids);
         y[0] = static_cast<float>(ids.size());
       }},
  };
}

void Register() {
  constexpr int kVocabulary = 262144;
  const auto add = [](const std::string& name, auto&&... arguments) {
    benchmark::RegisterBenchmark(name.c_str(), arguments...);
  };
  for (const Isa isa : SupportedIsas()) {
    const std::string_view set = IsaName(isa);
    for (const int n : {576, 2048, 16384, kVocabulary}) {
      for (const NamedOp& op : RowOps()) {
        add(fmt::format("{}/{}/{}", op.name, set, n), Run, isa, n, op);
      }
      add(fmt::format("quantise_32/{}/{}", set, n), RunQuantise, isa, n, ActNeeds{.group32 = true});
      add(fmt::format("quantise_256/{}/{}", set, n), RunQuantise, isa, n,
          ActNeeds{.group256 = true});
    }
    for (const NamedOp& op : VocabularyOps()) {
      add(fmt::format("{}/{}/{}", op.name, set, kVocabulary), Run, isa, kVocabulary, op);
    }
    for (const int k : {1, 40, 1000}) {
      add(fmt::format("top_{}/{}/{}", k, set, kVocabulary), RunTopK, isa, kVocabulary, k);
    }
  }
}

}  // namespace
}  // namespace nibble

int main(int argc, char** argv) {
  nibble::Register();
  return nibble::RunBenchmarks(argc, argv);
}
