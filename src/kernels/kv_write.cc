#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "format/small_float.h"
#include "kernels/attention.h"
#include "kernels/kernel_table.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

// What is stored is finite: a page's masked positions are multiplied by a weight of zero, and one
// token's overflow must not reach the others. A NaN becomes 0.
void Put(float x, uint16_t* to) { *to = std::isnan(x) ? 0 : F32ToF16Saturating(x); }
void Put(float x, float* to) {
  constexpr float kMost = std::numeric_limits<float>::max();
  *to = std::isnan(x) ? 0.0F : std::clamp(x, -kMost, kMost);
}

// n values to to[0], to[stride], …
template <class T>
void PutAll(const float* x, int n, T* to, int stride) {
  for (int i = 0; i < n; ++i) Put(x[i], to + static_cast<ptrdiff_t>(i) * stride);
}

void PutAs(KvFormat format, const float* x, int n, std::byte* base, int index, int stride) {
  if (format == KvFormat::kF16) {
    PutAll(x, n, reinterpret_cast<uint16_t*>(base) + index, stride);
  } else {
    PutAll(x, n, reinterpret_cast<float*>(base) + index, stride);
  }
}

// The sequence's rows that fall into one page, for one KV head.
void WritePage(const AttentionSequence& s, int page, int head, MatrixView<const float> k,
               MatrixView<const float> v) {
  const KvLayout& layout = s.kv.layout;
  const int dim = layout.head_dim;
  std::byte* keys =
      s.kv.piece(page) + (layout.KBytes() + layout.VBytes()) * static_cast<size_t>(head);
  std::byte* values = keys + layout.KBytes();
  const int first = s.first.value();
  const int begin = std::max(first, page * kPageTokens);
  const int end = std::min(first + s.rows, (page + 1) * kPageTokens);
  if (begin == page * kPageTokens && end < begin + kPageTokens) {
    std::memset(keys, 0, layout.KBytes() + layout.VBytes());
  }
  for (int position = begin; position < end; ++position) {
    const int row = s.row_begin + position - first;
    const int at = position % kPageTokens;
    const ptrdiff_t channel = static_cast<ptrdiff_t>(head) * dim;
    PutAs(layout.k, k.row(row) + channel, dim, keys, at, kPageTokens);
    PutAs(layout.v, v.row(row) + channel, dim, values, at * dim, 1);
  }
}

}  // namespace

void WriteKv(const KernelTable&, ThreadPool& pool, std::span<const AttentionSequence> sequences,
             MatrixView<const float> k, MatrixView<const float> v) {
  int rows = 0;
  for (const AttentionSequence& s : sequences) rows += s.rows;
  const auto write = [&](const AttentionSequence& s, int page) {
    for (int head = 0; head < s.kv.layout.kv_heads; ++head) WritePage(s, page, head, k, v);
  };
  // Pages of all sequences are numbered through; thread i of n takes every n-th.
  const auto share = [&](int thread, int threads) {
    int number = 0;
    for (const AttentionSequence& s : sequences) {
      if (s.rows == 0) continue;
      const int last = (s.first.value() + s.rows - 1) / kPageTokens;
      NIBBLE_CHECK(static_cast<size_t>(last) < s.kv.table.pages.size());
      for (int page = s.first.value() / kPageTokens; page <= last; ++page, ++number) {
        if (number % threads == thread) write(s, page);
      }
    }
  };
  constexpr int64_t kFewFloats = 8192;
  if (pool.size() == 1 || int64_t{rows} * k.cols <= kFewFloats) {
    share(0, 1);
  } else {
    pool.Run([&](int thread) { share(thread, pool.size()); });
  }
}

}  // namespace nibble
