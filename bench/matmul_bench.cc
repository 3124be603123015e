// Matmul per format, instruction set and token count: bytes of weights and multiply-adds per
// second.
//   matmul_bench --benchmark_filter='q4_k/.*/avx512vnni'
// Weights are larger than the last-level cache where tokens are few (the time is that of memory),
// and fit in it where they are many.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "bench/run_benchmarks.h"
#include "kernels/kernel_table.h"
#include "kernels/matmul.h"
#include "kernels/matmul_kernels.h"
#include "kernels/peaks.h"
#include "platform/bandwidth.h"
#include "platform/cpu.h"
#include "platform/memory.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

struct Shape {
  int rows;
  int cols;
};

AlignedBuffer MustAllocate(size_t bytes) {
  auto buffer = AlignedBuffer::Allocate(bytes);
  NIBBLE_CHECK(buffer.has_value());
  return std::move(*buffer);
}

// Random codes with small scales (a byte pattern whose f16 readings are finite).
AlignedBuffer RandomRows(Format format, Shape shape) {
  const size_t row = TraitsOf(format).RowBytes(static_cast<size_t>(shape.cols));
  AlignedBuffer file = MustAllocate(row * static_cast<size_t>(shape.rows));
  std::mt19937 engine(1);
  for (uint32_t& word : file.as<uint32_t>()) word = engine() & 0x3b3b3b3bu;
  if (format == Format::kMxfp4) {
    // A byte of 0x3b or less is a scale near the smallest float, and a product with it a denormal
    // one, which costs up to twice the time: no model has such.
    const std::span<uint8_t> bytes = file.as<uint8_t>();
    for (size_t block = 0; block < bytes.size(); block += TraitsOf(format).block_bytes) {
      bytes[block] = static_cast<uint8_t>(118 + (engine() & 7));
    }
  }
  return file;
}

class Fixture {
 public:
  Fixture(Format format, Shape shape, int threads) : pool_(threads) {
    const AlignedBuffer file = RandomRows(format, shape);
    packed_ = MustAllocate(PackedMatrix::Bytes(format, shape.rows, shape.cols));
    weights_ = PackedMatrix::Pack(format, shape.rows, shape.cols, file.as<std::byte>(),
                                  packed_.as<std::byte>(), pool_);
  }

  void Run(benchmark::State& state, Isa isa, Act act, int tokens) {
    const KernelTable table = {isa, &MatmulKernelsFor(isa), nullptr, nullptr};
    std::mt19937 engine(2);
    std::normal_distribution<float> normal;
    std::vector<float> x(static_cast<size_t>(tokens) * static_cast<size_t>(weights_.cols()));
    for (float& value : x) value = normal(engine);
    std::vector<float> y(static_cast<size_t>(tokens) * static_cast<size_t>(weights_.rows()));
    ActivationBlock block;
    NIBBLE_CHECK(block.Reserve(tokens, weights_.cols(), weights_.Needs(act)).has_value());
    const MatmulTask task = {&weights_, DenseView(y.data(), tokens, weights_.rows())};
    for (auto _ : state) {
      block.Prepare(table, pool_, DenseView(x.data(), tokens, weights_.cols()),
                    weights_.Needs(act));
      Matmul(table, pool_, act, block, std::span(&task, 1));
    }
    state.SetLabel(std::string(PeakName(PeakOf(weights_.format(), act))));
    const auto rounds = static_cast<double>(state.iterations());
    state.counters["GB/s"] = benchmark::Counter(
        rounds * static_cast<double>(weights_.bytes().size()) * 1e-9, benchmark::Counter::kIsRate);
    state.counters["GMAC/s"] = benchmark::Counter(
        rounds * tokens * weights_.rows() * 1e-9 * weights_.cols(), benchmark::Counter::kIsRate);
  }

  ThreadPool& pool() { return pool_; }

 private:
  ThreadPool pool_;
  AlignedBuffer packed_;
  PackedMatrix weights_;
};

// Made once for all benchmarks of a format that follow each other: Google Benchmark calls each
// several times, and filling and packing 160 MB takes longer than what is timed.
Fixture& FixtureFor(Format format, Shape shape, int threads) {
  static std::map<std::pair<int, int>, std::unique_ptr<Fixture>> fixtures;
  static Format last = format;
  if (last != format) fixtures.clear();
  last = format;
  auto& fixture = fixtures[{shape.rows, threads}];
  if (fixture == nullptr) fixture = std::make_unique<Fixture>(format, shape, threads);
  return *fixture;
}

Shape ShapeFor(Format format, int tokens) {
  const int cols = 2048;
  if (tokens > 64) return {2048, cols};
  const double bytes = TraitsOf(format).BitsPerWeight() / 8 * cols;
  return {static_cast<int>(160e6 / bytes) / 32 * 32, cols};
}

// One thread is timed by its own processor time, which neighbours disturb less.
void AddMatmul(Format format, Isa isa, Act act, int tokens, int threads) {
  const std::string name =
      fmt::format("{}/act_{}/{}/tokens_{}/workers_{}", TraitsOf(format).name,
                  act == Act::kInt8 ? "int8" : "f32", IsaName(isa), tokens, threads);
  auto* bench = benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
    FixtureFor(format, ShapeFor(format, tokens), threads).Run(state, isa, act, tokens);
  });
  bench->Unit(benchmark::kMicrosecond);
  if (threads > 1) bench->UseRealTime();
}

// What the instruction set can multiply at best, one thread.
void AddPeak(Isa isa) {
  const PeakKernels& peaks = PeakKernelsFor(isa);
  const auto add = [&](const char* kind, int64_t (*fn)(int64_t)) {
    benchmark::RegisterBenchmark(
        fmt::format("peak/{}/{}", kind, IsaName(isa)).c_str(), [=](benchmark::State& state) {
          int64_t macs = 0;
          for (auto _ : state) macs += fn(20000);
          state.counters["GMAC/s"] =
              benchmark::Counter(static_cast<double>(macs) * 1e-9, benchmark::Counter::kIsRate);
        });
  };
  add("int8", peaks.int8);
  add("int4", peaks.int4);
  add("f32", peaks.f32);
}

void AddPack(Format format, int threads) {
  const std::string name = fmt::format("pack/{}/workers_{}", TraitsOf(format).name, threads);
  benchmark::RegisterBenchmark(
      name.c_str(),
      [=](benchmark::State& state) {
        ThreadPool pool(threads);
        const Shape shape = ShapeFor(format, 1);
        const AlignedBuffer file = RandomRows(format, shape);
        AlignedBuffer packed = MustAllocate(PackedMatrix::Bytes(format, shape.rows, shape.cols));
        for (auto _ : state) {
          PackedMatrix::Pack(format, shape.rows, shape.cols, file.as<std::byte>(),
                             packed.as<std::byte>(), pool);
        }
        state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) *
                                static_cast<int64_t>(file.size()));
      })
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

void AddReadBandwidth(int threads) {
  benchmark::RegisterBenchmark(fmt::format("read/workers_{}", threads).c_str(),
                               [=](benchmark::State& state) {
                                 ThreadPool pool(threads);
                                 double best = 0;
                                 for (auto _ : state)
                                   best = std::max(best, ProbeReadBandwidth(pool, 0.5).value_or(0));
                                 state.counters["GB/s"] = best * 1e-9;
                               })
      ->UseRealTime()
      ->Iterations(1);
}

}  // namespace
}  // namespace nibble

int main(int argc, char** argv) {
  using namespace nibble;
  const int threads = ReadTopology().threads;
  AddReadBandwidth(threads);
  for (const Isa isa : SupportedIsas()) {
    if (isa != Isa::kScalar) AddPeak(isa);
  }
  for (const FormatTraits& traits : AllFormats()) {
    AddPack(traits.format, threads);
    for (const Isa isa : SupportedIsas()) {
      if (isa == Isa::kScalar) continue;
      for (const int tokens : {1, 2, 4, 8, 16, 32, 256}) {
        for (const int n : {1, threads}) {
          if (traits.activation_group != 0) AddMatmul(traits.format, isa, Act::kInt8, tokens, n);
          AddMatmul(traits.format, isa, Act::kF32, tokens, n);
          if (threads == 1) break;
        }
      }
    }
  }
  return nibble::RunBenchmarks(argc, argv);
}
