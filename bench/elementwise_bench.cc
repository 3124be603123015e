// Norms, gates, RoPE and vocabulary passes: floats read per second from L1/L2 (one thread).
#include "kernels/elementwise.h"

#include <benchmark/benchmark.h>

#include <functional>
#include <string>
#include <vector>

#include "kernels/attention_kernels.h"
#include "kernels/float_kernels.h"
#include "kernels/kernel_table.h"
#include "kernels/sampling.h"
#include "platform/cpu.h"

namespace nibble {
namespace {

using Op = std::function<void(const FloatKernels&, const std::vector<float>& a,
                              const std::vector<float>& b, std::vector<float>& y)>;

std::vector<float> Pattern(int n, float scale) {
  std::vector<float> x(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) x[i] = scale * static_cast<float>((i * 7919 + 13) % 1009 - 504) / 504;
  return x;
}

void Run(benchmark::State& state, Isa isa, int n, const Op& op) {
  const auto a = Pattern(n, 4);
  const auto b = Pattern(n, 1);
  std::vector<float> y(a.size());
  for (auto _ : state) {
    op(*FloatKernelsFor(isa), a, b, y);
    benchmark::DoNotOptimize(y.data());
    benchmark::ClobberMemory();
  }
  using benchmark::Counter;
  state.counters["Gfloat/s"] =
      Counter(n * static_cast<double>(state.iterations()) * 1e-9, Counter::kIsRate);
}

void RunTopK(benchmark::State& state, Isa isa, int n, int k) {
  const KernelTable kernels = {isa, nullptr, AttentionKernelsFor(isa), FloatKernelsFor(isa)};
  const auto logits = Pattern(n, 10);
  std::vector<int32_t> ids;
  for (auto _ : state) {
    SelectTopK(kernels, logits, k, ids);
    benchmark::DoNotOptimize(ids.data());
  }
}

int Size(const std::vector<float>& x) { return static_cast<int>(x.size()); }

void Register() {
  using Floats = std::vector<float>;
  const auto gate = [](int index) {
    return [index](const FloatKernels& k, const Floats& a, const Floats& b, Floats& y) {
      k.gate[index](a.data(), b.data(), Size(a), y.data());
    };
  };
  const std::pair<std::string, Op> ops[] = {
      {"rms_norm", [](const FloatKernels& k, const Floats& a, const Floats& b,
                      Floats& y) { k.rms_norm(a.data(), b.data(), 1e-5F, Size(a), y.data()); }},
      {"layer_norm",
       [](const FloatKernels& k, const Floats& a, const Floats& b, Floats& y) {
         k.layer_norm(a.data(), b.data(), b.data(), 1e-5F, Size(a), y.data());
       }},
      {"silu", gate(0)},
      {"gelu_tanh", gate(1)},
      {"gelu_erf", gate(2)},
      {"add", [](const FloatKernels& k, const Floats& a, const Floats&,
                 Floats& y) { k.add(a.data(), Size(a), y.data()); }},
      {"soft_cap", [](const FloatKernels& k, const Floats&, const Floats&,
                      Floats& y) { k.soft_cap(30, Size(y), y.data()); }},
      {"rope_halves",
       [](const FloatKernels& k, const Floats& a, const Floats& b, Floats& y) {
         k.rope_halves({a.data(), b.data(), 32, Size(y) / 64, 64}, y.data());
       }},
      {"rope_interleaved",
       [](const FloatKernels& k, const Floats& a, const Floats& b, Floats& y) {
         k.rope_interleaved({a.data(), b.data(), 32, Size(y) / 64, 64}, y.data());
       }},
      {"max", [](const FloatKernels& k, const Floats& a, const Floats&,
                 Floats& y) { y[0] = k.max(a.data(), Size(a)); }},
      {"sum_exp", [](const FloatKernels& k, const Floats& a, const Floats&,
                     Floats& y) { y[0] = static_cast<float>(k.sum_exp(a.data(), 4, Size(a))); }},
  };
  for (Isa isa : SupportedIsas()) {
    if (isa != Isa::kAvx2 && isa != SupportedIsas().back()) continue;
    for (const auto& [name, op] : ops) {
      for (int n : {576, 2048, 262144}) {
        benchmark::RegisterBenchmark(fmt::format("{}/{}/{}", name, IsaName(isa), n).c_str(), Run,
                                     isa, n, op);
      }
    }
    for (int k : {1, 40, 1000}) {
      benchmark::RegisterBenchmark(fmt::format("top_k/{}/262144/{}", IsaName(isa), k).c_str(),
                                   RunTopK, isa, 262144, k);
    }
  }
}

}  // namespace
}  // namespace nibble

int main(int argc, char** argv) {
  nibble::Register();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
