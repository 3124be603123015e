#include "advise/attention_exactness.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "base/check.h"
#include "base/math.h"
#include "kernels/attention.h"
#include "kernels/attention_naive.h"
#include "platform/memory.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

std::vector<float> Random(size_t n, unsigned seed, float scale) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> x(n);
  for (float& value : x) value = normal(engine);
  return x;
}

// A sequence whose pages lie in reverse order.
struct Cache {
  KvLayout sealed;
  KvLayout layout;  // open
  AlignedBuffer arena;
  AlignedBuffer sealed_arena;
  std::vector<PageId> pages;

  Status Create(int positions) {
    const int count = CeilDiv(positions, kPageTokens);
    const auto pages_count = static_cast<size_t>(count);
    NIBBLE_TRY(arena, AlignedBuffer::Allocate(layout.PieceBytes() * pages_count));
    if (sealed != layout) {
      NIBBLE_TRY(sealed_arena, AlignedBuffer::Allocate(sealed.PieceBytes() * pages_count));
    }
    for (int p = count - 1; p >= 0; --p) pages.emplace_back(p);
    return {};
  }
  AttentionSequence Rows(int first, int rows) {
    KvTable table = {.arena = arena.data(), .page_bytes = layout.PieceBytes(), .pages = pages};
    if (sealed != layout) {
      table.sealed_arena = sealed_arena.data();
      table.sealed_page_bytes = sealed.PieceBytes();
      table.sealed = pages;
    }
    const KvView view = {
        .table = table, .layout = layout, .sealed = sealed, .unit_pages = UnitPages(sealed)};
    return {.row_begin = 0, .rows = rows, .first = Position{first}, .kv = view};
  }
};

// Fills the cache in chunks, so that the floats of a long context need no memory of their own.
void Fill(const KernelTable& kernels, ThreadPool& pool, Cache& cache, int positions) {
  constexpr int kChunk = 512;
  const int cols = cache.layout.kv_heads * cache.layout.head_dim;
  for (int first = 0; first < positions; first += kChunk) {
    const int rows = std::min(kChunk, positions - first);
    const size_t count = static_cast<size_t>(rows) * static_cast<size_t>(cols);
    const auto seed = static_cast<unsigned>(first);
    const auto k = Random(count, 2 * seed + 1, 1);
    const auto v = Random(count, 2 * seed + 2, 1);
    const AttentionSequence sequence = cache.Rows(first, rows);
    WriteKv(kernels, pool, {&sequence, 1}, DenseView<const float>(k.data(), rows, cols),
            DenseView<const float>(v.data(), rows, cols));
  }
}

Result<AttentionExactness> MeasureAt(const KernelTable& kernels, ThreadPool& pool, int positions,
                                     const AttentionExactnessOptions& o) {
  const AttentionShape shape = {.heads = o.heads,
                                .kv_heads = o.kv_heads,
                                .head_dim = o.head_dim,
                                .scale = 1 / std::sqrt(static_cast<float>(o.head_dim)),
                                .act = o.act};
  Cache cache;
  cache.sealed = {.k = o.k, .v = o.v, .kv_heads = o.kv_heads, .head_dim = o.head_dim};
  cache.layout = OpenLayout(cache.sealed);
  NIBBLE_RETURN_IF_ERROR(cache.Create(positions));
  Fill(kernels, pool, cache, positions);

  const int rows = std::min(o.rows, positions);
  const int first = positions - rows;
  const int cols = o.heads * o.head_dim;
  // Twice the usual size: a few positions hold most of the weight, as in a model.
  const auto q = Random(static_cast<size_t>(rows) * static_cast<size_t>(cols), 7, 2);
  std::vector<float> out(q.size());
  AttentionWorkspace workspace;
  NIBBLE_RETURN_IF_ERROR(workspace.Reserve(shape, pool.size()));
  const AttentionSequence all = cache.Rows(first, rows);
  Attention(kernels, pool, shape,
            {.sequences = {&all, 1},
             .q = DenseView<const float>(q.data(), rows, cols),
             .out = DenseView(out.data(), rows, cols)},
            workspace);
  std::vector<float> alone(static_cast<size_t>(cols));
  AttentionExactness result{.positions = positions, .workspace_bytes = workspace.buffer().size()};
  for (int row = 0; row < rows; ++row) {
    const float* query = q.data() + static_cast<ptrdiff_t>(row) * cols;
    const float* batched = out.data() + static_cast<ptrdiff_t>(row) * cols;
    const AttentionSequence one = cache.Rows(first + row, 1);
    Attention(kernels, pool, shape,
              {.sequences = {&one, 1},
               .q = DenseView<const float>(query, 1, cols),
               .out = DenseView(alone.data(), 1, cols)},
              workspace);
    NIBBLE_CHECK(std::equal(alone.begin(), alone.end(), batched));  // idea 3: same bits
    for (int head = 0; head < o.heads; ++head) {
      const ptrdiff_t at = static_cast<ptrdiff_t>(head) * o.head_dim;
      const NaiveAttentionRow want =
          NaiveAttention(shape, all.kv, head, Position{first + row}, query + at);
      for (int c = 0; c < o.head_dim; ++c) {
        const auto channel = static_cast<size_t>(c);
        const double error = std::fabs(double{batched[at + c]} - want.out[channel]);
        result.worst_ratio = std::max(result.worst_ratio, error / want.bound[channel]);
        if (error <= result.max_error) continue;
        result.max_error = error;
        result.bound = want.bound[channel];
      }
    }
  }
  return result;
}

}  // namespace

Result<std::vector<AttentionExactness>> MeasureAttentionExactness(
    const KernelTable& kernels, ThreadPool& pool, std::span<const int> positions,
    const AttentionExactnessOptions& options) {
  std::vector<AttentionExactness> results;
  for (const int count : positions) {
    NIBBLE_TRY(const AttentionExactness result, MeasureAt(kernels, pool, count, options));
    results.push_back(result);
  }
  return results;
}

}  // namespace nibble
