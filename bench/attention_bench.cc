// Attention over pages of every format: decode from memory, one sequence or 16 in a step, as a
// fraction of the read bandwidth, and prefill from cache, as a fraction of the multiply peak; both
// limits are measured in alternation. Pages as in a model: the sequences in many layers. Sealed
// formats also state how many times faster they are than f16 pages of the same shape, which are run
// in alternation too.
#include "kernels/attention.h"

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <optional>
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
  int rows;  // of each sequence
  int sequences = 1;

  bool decode() const { return rows == 1; }
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
    const int pages = (s.context + kPageTokens - 1) / kPageTokens * s.sequences;
    const size_t step = sealed_.PieceBytes() * static_cast<size_t>(pages);
    layers_ = static_cast<int>(least_bytes / step) + 1;
    // What is read sealed needs no open pages, but for the one that is sealed from them.
    const int open_pages = two_forms() && s.decode() ? UnitPages(sealed_) : pages;
    for (int p = 0; p < pages; ++p) pages_.emplace_back(p);
    for (int p = 0; p < pages; ++p) open_pages_.emplace_back(p % open_pages);
    const auto layers = static_cast<size_t>(layers_);
    arena_ =
        *AlignedBuffer::Allocate(open_.PieceBytes() * layers * static_cast<size_t>(open_pages));
    if (two_forms()) sealed_arena_ = *AlignedBuffer::Allocate(step * layers);
    const int rows = s.rows * s.sequences;
    q_ = Random(static_cast<size_t>(rows) * s.heads * s.head_dim, 1);
    out_.resize(q_.size());
    workspace_.Reserve(shape_, threads).value();
    Fill();
  }

  void Step(int layer) {
    sequences_.clear();
    for (int s = 0; s < setup_.sequences; ++s) {
      sequences_.push_back(Sequence(layer, s, setup_.context - setup_.rows, setup_.rows));
    }
    const int cols = shape_.heads * shape_.head_dim;
    const int rows = setup_.rows * setup_.sequences;
    Attention(kernels_, pool_, shape_,
              {.sequences = sequences_,
               .q = DenseView<const float>(q_.data(), rows, cols),
               .out = DenseView(out_.data(), rows, cols)},
              workspace_);
    benchmark::DoNotOptimize(out_.data());
  }

  // That one step reads.
  double bytes() const {
    const KvView view = Sequence(0, 0, 0, 1).kv;
    const int sealed = view.SealedPages(setup_.context - 1);
    const auto open = static_cast<double>(view.table.pages.size()) - sealed;
    return (static_cast<double>(sealed_.PieceBytes()) * sealed +
            static_cast<double>(open_.PieceBytes()) * open) *
           setup_.sequences;
  }
  // Seconds of a step: the mean of all layers.
  double Seconds() {
    const double started = MonotonicSeconds();
    for (int layer = 0; layer < layers_; ++layer) Step(layer);
    return (MonotonicSeconds() - started) / layers_;
  }
  double multiplies() const {
    double seen = 0;
    for (int r = 1; r <= setup_.rows; ++r) seen += setup_.context - setup_.rows + r;
    return 2 * seen * shape_.heads * shape_.head_dim * setup_.sequences;
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

  bool two_forms() const { return sealed_ != open_; }

  AttentionSequence Sequence(int layer, int number, int first, int rows) const {
    const size_t pages = pages_.size() / static_cast<size_t>(setup_.sequences);
    const size_t first_page = pages * static_cast<size_t>(number);
    const auto layers = static_cast<size_t>(layers_);
    const auto at = static_cast<size_t>(layer);
    KvTable table = {.arena = const_cast<std::byte*>(arena_.as<std::byte>().data()),
                     .page_bytes = open_.PieceBytes() * layers,
                     .pages = std::span(open_pages_).subspan(first_page, pages)};
    if (two_forms()) {
      table.sealed_arena = const_cast<std::byte*>(sealed_arena_.as<std::byte>().data());
      table.sealed_page_bytes = sealed_.PieceBytes() * layers;
      table.sealed = std::span(pages_).subspan(first_page, pages);
    }
    const KvView view = {.table = table,
                         .layer_offset = open_.PieceBytes() * at,
                         .layout = open_,
                         .sealed_offset = sealed_.PieceBytes() * at,
                         .sealed = sealed_,
                         .unit_pages = UnitPages(sealed_)};
    return {.row_begin = number * setup_.rows, .rows = rows, .first = Position{first}, .kv = view};
  }

  // One page is written and sealed, the others are copies.
  void Fill() {
    const int tokens = kPageTokens * UnitPages(sealed_);
    const int cols = setup_.kv_heads * setup_.head_dim;
    const auto k = Random(static_cast<size_t>(tokens * cols), 2);
    const auto v = Random(static_cast<size_t>(tokens * cols), 3);
    const AttentionSequence sequence = Sequence(0, 0, 0, tokens);
    WriteKv(kernels_, pool_, {&sequence, 1}, DenseView<const float>(k.data(), tokens, cols),
            DenseView<const float>(v.data(), tokens, cols));
    const auto copy = [](AlignedBuffer& arena, size_t bytes) {
      for (size_t at = bytes; at < arena.size() / bytes * bytes; at += bytes) {
        std::memcpy(arena.data() + at, arena.data(), bytes);
      }
    };
    copy(arena_, open_.PieceBytes());
    if (two_forms()) copy(sealed_arena_, sealed_.PieceBytes());
  }

  Setup setup_;
  const KernelTable& kernels_;
  ThreadPool pool_;
  AttentionShape shape_;
  KvLayout open_;
  KvLayout sealed_;
  AlignedBuffer arena_;
  AlignedBuffer sealed_arena_;
  std::vector<PageId> pages_;  // of all sequences
  std::vector<PageId> open_pages_;
  std::vector<AttentionSequence> sequences_;
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
  const bool decode = setup.decode();
  const KernelTable kernels = {isa, nullptr, AttentionKernelsFor(isa), FloatKernelsFor(isa)};
  const size_t least = decode ? 4 * ReadTopology().last_level_cache : 1;
  Model model(setup, least, kernels, threads);
  std::optional<Model> f16;
  if (decode && TraitsOf(setup.format).sealed_only) {
    Setup plain = setup;
    plain.format = KvFormat::kF16;
    f16.emplace(plain, least, kernels, threads);
  }
  Result<ReadProbe> probe = ReadProbe::OfSize(model.pool(), decode ? least : size_t{1} << 16);
  if (!probe) return state.SkipWithError(probe.error().message.c_str());
  std::vector<double> rates;
  std::vector<double> fractions;
  std::vector<double> gains;
  for (auto _ : state) {
    const double seconds = model.Seconds();
    if (f16) gains.push_back(f16->Seconds() / seconds);
    state.SetIterationTime(seconds);
    const double limit = decode ? probe->Round() : MeasurePeak(model.pool(), PeakKernelsFor(isa));
    rates.push_back((decode ? model.bytes() : model.multiplies()) / seconds);
    fractions.push_back(rates.back() / limit);
  }
  state.counters[decode ? "GB/s" : "GMAC/s"] = Median(rates) * 1e-9;
  state.counters[decode ? "of_read" : "of_peak"] = Median(fractions);
  if (f16) state.counters["x_f16"] = Median(gains);
  if (decode) {
    state.counters["GMAC/s"] = Median(rates) * 1e-9 * model.multiplies() / model.bytes();
  }
}

// Sealing one page of one head, both sides, from the first cache.
void RunSeal(benchmark::State& state, Isa isa, KvFormat format, int head_dim) {
  const AttentionKernels& kernels = *AttentionKernelsFor(isa);
  const auto n = static_cast<size_t>(kPageTokens * head_dim);
  std::vector<uint16_t> open(n);
  for (size_t i = 0; i < n; ++i) open[i] = static_cast<uint16_t>(0x3000 + i * 2654435761U % 4096);
  std::vector<float> scratch(n);
  std::vector<std::byte> sealed(2 * n);
  float page_float = 0;
  for (auto _ : state) {
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      kernels.seal({.format = format,
                    .side = side,
                    .head_dim = head_dim,
                    .from = reinterpret_cast<const std::byte*>(open.data()),
                    .scratch = scratch.data(),
                    .to = sealed.data(),
                    .page_float = &page_float});
      benchmark::DoNotOptimize(sealed.data());
    }
  }
}

void Register() {
  struct Shape {
    int heads;
    int kv_heads;
    int head_dim;
  };
  struct Kind {
    const char* name;
    int context;
    int rows;
    int sequences;
  };
  const Shape shapes[] = {{4, 4, 64},    {9, 3, 64},   {16, 4, 64},  {32, 4, 64},
                          {16, 16, 128}, {32, 8, 128}, {32, 4, 128}, {4, 1, 256}};
  const Kind kinds[] = {
      {"decode8k", 8192, 1, 1}, {"decode16x8k", 8192, 1, 16}, {"prefill512", 512, 512, 1}};
  const int most = ReadTopology().threads;
  const auto add = [](Isa isa, const Kind& kind, Setup setup, int threads) {
    setup.context = kind.context;
    setup.rows = kind.rows;
    setup.sequences = kind.sequences;
    const std::string name =
        fmt::format("{}/{}/{}h{}kv/d{}/{}/t{}", kind.name, IsaName(isa), setup.heads,
                    setup.kv_heads, setup.head_dim, TraitsOf(setup.format).name, threads);
    benchmark::RegisterBenchmark(name.c_str(), Run, isa, setup, threads)
        ->UseManualTime()
        ->Iterations(setup.decode() ? 9 : 31);
  };
  for (const Isa isa : SupportedIsas()) {
    for (const KvFormatTraits& format : AllKvFormats()) {
      if (!format.sealed_only) continue;
      benchmark::RegisterBenchmark(fmt::format("seal/{}/d64/{}", IsaName(isa), format.name).c_str(),
                                   RunSeal, isa, format.format, 64);
    }
    if (isa != Isa::kAvx2 && isa != SupportedIsas().back()) continue;
    for (const Shape& s : shapes) {
      for (const KvFormatTraits& format : AllKvFormats()) {
        for (const Kind& kind : kinds) {
          for (const int threads : {1, most}) {
            add(isa, kind, {s.heads, s.kv_heads, s.head_dim, format.format, 0, 0}, threads);
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
