// Attention over pages of every format: decode from memory, as a fraction of the read bandwidth,
// and prefill from cache, as a fraction of the multiply peak; both limits are measured in
// alternation. Pages as in a model: one sequence in many layers.
#include "kernels/attention.h"

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/statistics.h"
#include "bench/run_benchmarks.h"
#include "kernels/attention_kernels.h"
#include "kernels/float_kernels.h"
#include "kernels/kernel_table.h"
#include "kernels/peaks.h"
#include "platform/bandwidth.h"
#include "platform/clock.h"
#include "platform/cpu.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

struct Setup {
  int heads;
  int kv_heads;
  int head_dim;
  KvFormat format;
  int context;
  int rows;
};

class Model {
 public:
  Model(const Setup& s, size_t least_bytes, const KernelTable& kernels, int threads)
      : setup_(s), kernels_(kernels), pool_(threads) {
    shape_ = {.heads = s.heads,
              .kv_heads = s.kv_heads,
              .head_dim = s.head_dim,
              .scale = 1 / std::sqrt(static_cast<float>(s.head_dim))};
    sealed_ = {.k = s.format, .v = s.format, .kv_heads = s.kv_heads, .head_dim = s.head_dim};
    open_ = OpenLayout(sealed_);
    const int pages = (s.context + kPageTokens - 1) / kPageTokens;
    const size_t piece = std::min(open_.PieceBytes(), sealed_.PieceBytes());
    layers_ = static_cast<int>(least_bytes / (piece * static_cast<size_t>(pages))) + 1;
    for (int p = 0; p < pages; ++p) pages_.emplace_back(p);
    const size_t count = static_cast<size_t>(pages) * static_cast<size_t>(layers_);
    arena_ = *AlignedBuffer::Allocate(open_.PieceBytes() * count);
    if (sealed_ != open_) sealed_arena_ = *AlignedBuffer::Allocate(sealed_.PieceBytes() * count);
    q_ = Random(static_cast<size_t>(s.rows) * s.heads * s.head_dim, 1);
    out_.resize(q_.size());
    workspace_.Reserve(shape_, threads).value();
    Fill(static_cast<int>(count));
  }

  void Step(int layer) {
    const AttentionSequence sequence = Sequence(layer, setup_.context - setup_.rows, setup_.rows);
    const int cols = shape_.heads * shape_.head_dim;
    Attention(kernels_, pool_, shape_,
              {.sequences = {&sequence, 1},
               .q = DenseView<const float>(q_.data(), setup_.rows, cols),
               .out = DenseView(out_.data(), setup_.rows, cols)},
              workspace_);
    benchmark::DoNotOptimize(out_.data());
  }

  int layers() const { return layers_; }
  // That one step reads.
  double bytes() const {
    const KvView view = Sequence(0, 0, 1).kv;
    const int sealed = view.SealedPages(setup_.context - 1);
    return static_cast<double>(sealed_.PieceBytes()) * sealed +
           static_cast<double>(open_.PieceBytes()) * (static_cast<int>(pages_.size()) - sealed);
  }
  double multiplies() const {
    double seen = 0;
    for (int r = 1; r <= setup_.rows; ++r) seen += setup_.context - setup_.rows + r;
    return 2 * seen * shape_.heads * shape_.head_dim;
  }
  ThreadPool& pool() { return pool_; }

 private:
  static std::vector<float> Random(size_t n, unsigned seed) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal;
    std::vector<float> x(n);
    for (float& value : x) value = normal(engine);
    return x;
  }

  AttentionSequence Sequence(int layer, int first, int rows) const {
    const auto layers = static_cast<size_t>(layers_);
    const auto at = static_cast<size_t>(layer);
    KvTable table = {.arena = const_cast<std::byte*>(arena_.as<std::byte>().data()),
                     .page_bytes = open_.PieceBytes() * layers,
                     .pages = pages_};
    if (sealed_ != open_) {
      table.sealed_arena = const_cast<std::byte*>(sealed_arena_.as<std::byte>().data());
      table.sealed_page_bytes = sealed_.PieceBytes() * layers;
      table.sealed = pages_;
    }
    const KvView view = {.table = table,
                         .layer_offset = open_.PieceBytes() * at,
                         .layout = open_,
                         .sealed_offset = sealed_.PieceBytes() * at,
                         .sealed = sealed_,
                         .unit_pages = UnitPages(sealed_)};
    return {.row_begin = 0, .rows = rows, .first = Position{first}, .kv = view};
  }

  // One page is written and sealed, the others are copies.
  void Fill(int pieces) {
    const int tokens = kPageTokens * UnitPages(sealed_);
    const int cols = setup_.kv_heads * setup_.head_dim;
    const auto k = Random(static_cast<size_t>(tokens * cols), 2);
    const auto v = Random(static_cast<size_t>(tokens * cols), 3);
    const AttentionSequence sequence = Sequence(0, 0, tokens);
    WriteKv(kernels_, pool_, {&sequence, 1}, DenseView<const float>(k.data(), tokens, cols),
            DenseView<const float>(v.data(), tokens, cols));
    const auto copy = [pieces](std::byte* arena, size_t bytes) {
      for (int i = 1; i < pieces; ++i)
        std::memcpy(arena + bytes * static_cast<size_t>(i), arena, bytes);
    };
    copy(arena_.data(), open_.PieceBytes());
    if (sealed_ != open_) copy(sealed_arena_.data(), sealed_.PieceBytes());
  }

  Setup setup_;
  const KernelTable& kernels_;
  ThreadPool pool_;
  AttentionShape shape_;
  KvLayout open_;
  KvLayout sealed_;
  AlignedBuffer arena_;
  AlignedBuffer sealed_arena_;
  std::vector<PageId> pages_;
  std::vector<float> q_;
  std::vector<float> out_;
  AttentionWorkspace workspace_;
  int layers_ = 1;
};

// Fused multiply-adds per second of all threads, over about a millisecond.
double MeasurePeak(ThreadPool& pool, const PeakKernels& peaks) {
  std::atomic<int64_t> macs = 0;
  const double started = MonotonicSeconds();
  pool.Run([&](int) { macs += peaks.f32(1 << 15); });
  return static_cast<double>(macs) / (MonotonicSeconds() - started);
}

void Run(benchmark::State& state, Isa isa, const Setup& setup, int threads) {
  const bool decode = setup.rows == 1;
  const KernelTable kernels = {isa, nullptr, AttentionKernelsFor(isa), FloatKernelsFor(isa)};
  Model model(setup, decode ? 4 * ReadTopology().last_level_cache : 1, kernels, threads);
  Result<ReadProbe> probe = ReadProbe::OfSize(
      model.pool(), decode ? 4 * ReadTopology().last_level_cache : size_t{1} << 16);
  if (!probe) return state.SkipWithError(probe.error().message.c_str());
  std::vector<double> rates;
  std::vector<double> fractions;
  for (auto _ : state) {
    const double started = MonotonicSeconds();
    for (int layer = 0; layer < model.layers(); ++layer) model.Step(layer);
    const double seconds = (MonotonicSeconds() - started) / model.layers();
    state.SetIterationTime(seconds);
    const double limit = decode ? probe->Round() : MeasurePeak(model.pool(), PeakKernelsFor(isa));
    rates.push_back((decode ? model.bytes() : model.multiplies()) / seconds);
    fractions.push_back(rates.back() / limit);
  }
  state.counters[decode ? "GB/s" : "GMAC/s"] = Median(rates) * 1e-9;
  state.counters[decode ? "of_read" : "of_peak"] = Median(fractions);
  if (decode) {
    state.counters["GMAC/s"] = Median(rates) * 1e-9 * model.multiplies() / model.bytes();
  }
}

void Register() {
  struct Shape {
    int heads;
    int kv_heads;
    int head_dim;
  };
  const Shape shapes[] = {{4, 4, 64},    {9, 3, 64},   {16, 4, 64},  {32, 4, 64},
                          {16, 16, 128}, {32, 8, 128}, {32, 4, 128}, {4, 1, 256}};
  const int most = ReadTopology().threads;
  for (const Isa isa : SupportedIsas()) {
    if (isa != Isa::kAvx2 && isa != SupportedIsas().back()) continue;
    for (const Shape& s : shapes) {
      for (const KvFormatTraits& format : AllKvFormats()) {
        for (const int rows : {1, 512}) {
          for (const int threads : {1, most}) {
            const Setup setup = {
                s.heads, s.kv_heads, s.head_dim, format.format, rows == 1 ? 8192 : rows, rows};
            const std::string name =
                fmt::format("{}/{}/{}h{}kv/d{}/{}/t{}", rows == 1 ? "decode8k" : "prefill512",
                            IsaName(isa), s.heads, s.kv_heads, s.head_dim, format.name, threads);
            benchmark::RegisterBenchmark(name.c_str(), Run, isa, setup, threads)
                ->UseManualTime()
                ->Iterations(rows == 1 ? 9 : 31);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace nibble

int main(int argc, char** argv) {
  nibble::Register();
  return nibble::RunBenchmarks(argc, argv);
}
