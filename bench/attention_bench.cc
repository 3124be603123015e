// Attention over f16 and f32 pages: decode from memory (bytes/s beside the probe's read bandwidth)
// and prefill from cache (multiply-adds per second). Workspaces and pages as in a model.
#include "kernels/attention.h"

#include <benchmark/benchmark.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/attention_kernels.h"
#include "kernels/float_kernels.h"
#include "kernels/kernel_table.h"
#include "platform/bandwidth.h"
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

// One sequence in as many layers as make the pages larger than four last-level caches.
class Model {
 public:
  Model(const Setup& s, size_t least_bytes, int threads) : pool_(threads) {
    shape_ = {s.heads, s.kv_heads, s.head_dim, 1 / std::sqrt(static_cast<float>(s.head_dim)),
              0,       0,          nullptr};
    layout_ = {s.format, s.format, s.kv_heads, s.head_dim};
    const int pages = (s.context + kPageTokens - 1) / kPageTokens;
    const size_t layer = layout_.PieceBytes() * static_cast<size_t>(pages);
    layers_ = static_cast<int>(least_bytes / layer) + 1;
    arena_ = *AlignedBuffer::Allocate(layer * static_cast<size_t>(layers_));
    for (int p = 0; p < pages; ++p) pages_.push_back(PageId{p});
    // A repeating pattern of halves near 0.01 … 0.02, as floats equally small.
    auto words = arena_.as<uint32_t>();
    const uint32_t base = s.format == KvFormat::kF16 ? 0x20002100U : 0x3c000000U;
    for (size_t i = 0; i < words.size(); ++i) words[i] = base + (i * 2654435761U >> 24);
    q_.assign(static_cast<size_t>(s.rows) * s.heads * s.head_dim, 0.5F);
    out_.resize(q_.size());
    rows_ = s.rows;
    first_ = s.context - s.rows;
    workspace_.Reserve(shape_, threads).value();
  }

  void Step(const KernelTable& kernels, int layer) {
    const KvTable table = {.arena = arena_.data(),
                           .page_bytes = layout_.PieceBytes() * static_cast<size_t>(layers_),
                           .pages = pages_};
    const AttentionSequence sequence = {
        0,
        rows_,
        Position{first_},
        {.table = table,
         .layer_offset = layout_.PieceBytes() * static_cast<size_t>(layer),
         .layout = layout_,
         .sealed = layout_}};
    const int cols = shape_.heads * shape_.head_dim;
    Attention(kernels, pool_, shape_,
              {{&sequence, 1},
               DenseView<const float>(q_.data(), rows_, cols),
               DenseView(out_.data(), rows_, cols)},
              workspace_);
    benchmark::DoNotOptimize(out_.data());
  }

  int layers() const { return layers_; }
  double bytes() const { return static_cast<double>(layout_.PieceBytes() * pages_.size()); }
  double multiplies() const {
    double seen = 0;
    for (int r = 0; r < rows_; ++r) seen += first_ + r + 1;
    return 2 * seen * shape_.heads * shape_.head_dim;
  }
  ThreadPool& pool() { return pool_; }

 private:
  ThreadPool pool_;
  AttentionShape shape_;
  KvLayout layout_;
  AlignedBuffer arena_;
  std::vector<PageId> pages_;
  std::vector<float> q_;
  std::vector<float> out_;
  AttentionWorkspace workspace_;
  int layers_ = 1;
  int rows_ = 1;
  int first_ = 0;
};

void Run(benchmark::State& state, Isa isa, const Setup& setup, int threads) {
  const bool decode = setup.rows == 1;
  Model model(setup, decode ? 4 * ReadTopology().last_level_cache : 1, threads);
  const KernelTable kernels = {isa, nullptr, AttentionKernelsFor(isa), FloatKernelsFor(isa)};
  int layer = 0;
  for (auto _ : state) {
    model.Step(kernels, layer);
    layer = (layer + 1) % model.layers();
  }
  const auto steps = static_cast<double>(state.iterations());
  using benchmark::Counter;
  state.counters["GMAC/s"] = Counter(model.multiplies() * steps * 1e-9, Counter::kIsRate);
  if (decode) {
    state.counters["GB/s"] = Counter(model.bytes() * steps * 1e-9, Counter::kIsRate);
    state.counters["read"] = ProbeReadBandwidth(model.pool(), 0.2).value_or(0) * 1e-9;
  }
}

void Register() {
  struct Shape {
    int heads;
    int kv_heads;
    int head_dim;
  };
  const Shape shapes[] = {{4, 4, 64},  {9, 3, 64},   {16, 4, 64},
                          {32, 4, 64}, {32, 4, 128}, {4, 1, 256}};
  const int most = ReadTopology().threads;
  for (Isa isa : SupportedIsas()) {
    if (isa != Isa::kAvx2 && isa != SupportedIsas().back()) continue;
    for (const Shape& s : shapes) {
      for (KvFormat format : {KvFormat::kF16, KvFormat::kF32}) {
        for (int rows : {1, 512}) {
          for (int threads : {1, most}) {
            const Setup setup = {s.heads, s.kv_heads, s.head_dim, format, rows == 1 ? 8192 : rows,
                                 rows};
            const std::string name = fmt::format(
                "{}/{}/{}h{}kv/d{}/{}/t{}", rows == 1 ? "decode8k" : "prefill512", IsaName(isa),
                s.heads, s.kv_heads, s.head_dim, format == KvFormat::kF16 ? "f16" : "f32", threads);
            // One thread by its own processor time, so that neighbours disturb less.
            auto* bench = benchmark::RegisterBenchmark(name.c_str(), Run, isa, setup, threads);
            if (threads > 1) bench->UseRealTime();
            bench->MinTime(0.3);
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
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
