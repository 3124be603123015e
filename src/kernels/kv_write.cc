#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/attention_kernels.h"
#include "kernels/kernel_table.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

// What is stored is finite: a page's masked positions are multiplied by a weight of zero, and one
// token's overflow must not reach the others. A NaN becomes 0.
void ToFinite(const float* x, int n, float* to) {
  constexpr float kMost = std::numeric_limits<float>::max();
  for (int i = 0; i < n; ++i) to[i] = std::isnan(x[i]) ? 0.0F : std::clamp(x[i], -kMost, kMost);
}

template <class T>
void Spread(const T* x, int n, T* to, int stride) {
  for (int i = 0; i < n; ++i) to[static_cast<ptrdiff_t>(i) * stride] = x[i];
}

// n values in the format to element `index`, `index` + stride, … of base.
void PutAs(const AttentionKernels& kernels, KvFormat format, std::span<const float> x,
           std::byte* base, int index, int stride) {
  constexpr size_t kPiece = 256;
  uint16_t halves[kPiece];
  float floats[kPiece];
  for (size_t at = 0; at < x.size(); at += kPiece) {
    const int n = static_cast<int>(std::min(kPiece, x.size() - at));
    const ptrdiff_t first = index + static_cast<ptrdiff_t>(at) * stride;
    if (format == KvFormat::kF16) {
      kernels.to_half(x.data() + at, n, halves);
      Spread(halves, n, reinterpret_cast<uint16_t*>(base) + first, stride);
    } else {
      ToFinite(x.data() + at, n, floats);
      Spread(floats, n, reinterpret_cast<float*>(base) + first, stride);
    }
  }
}

// The sequence's rows that fall into one page, for one KV head.
void WritePage(const AttentionKernels& kernels, const AttentionSequence& s, int page, int head,
               MatrixView<const float> k, MatrixView<const float> v) {
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
    const auto channel = static_cast<size_t>(head) * static_cast<size_t>(dim);
    const auto count = static_cast<size_t>(dim);
    PutAs(kernels, layout.k, k.row_span(row).subspan(channel, count), keys, at, kPageTokens);
    PutAs(kernels, layout.v, v.row_span(row).subspan(channel, count), values, at * dim, 1);
  }
}

}  // namespace

void WriteKv(const KernelTable& kernels, ThreadPool& pool,
             std::span<const AttentionSequence> sequences, MatrixView<const float> k,
             MatrixView<const float> v) {
  int rows = 0;
  for (const AttentionSequence& s : sequences) rows += s.rows;
  const auto write = [&](const AttentionSequence& s, int page) {
    for (int head = 0; head < s.kv.layout.kv_heads; ++head) {
      WritePage(*kernels.attention, s, page, head, k, v);
    }
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
