#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/attention_kernels.h"
#include "kernels/elementwise.h"
#include "kernels/kernel_table.h"
#include "kernels/kv_scales.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

// What is stored is finite: a page's masked positions are multiplied by a weight of zero, and one
// token's overflow must not reach the others. A NaN becomes 0 (but see WritePage).
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

void PutNan(KvFormat format, std::byte* base, int index) {
  if (format == KvFormat::kF16) {
    reinterpret_cast<uint16_t*>(base)[index] = 0x7e00;
  } else {
    reinterpret_cast<float*>(base)[index] = std::numeric_limits<float>::quiet_NaN();
  }
}

bool HasNan(std::span<const float> x) {
  uint32_t most = 0;
  for (const float value : x) most = std::max(most, std::bit_cast<uint32_t>(value) & 0x7fffffffU);
  return most > 0x7f800000U;
}

// The sequence's rows that fall into one page, for one KV head. A token with a NaN gets a NaN key:
// scores of masked positions are dropped, not multiplied by zero, so that those who see the token,
// and only they, become NaN.
void WritePage(const AttentionKernels& kernels, const AttentionSequence& s, int page, int head,
               MatrixView<const float> k, MatrixView<const float> v) {
  const KvLayout& layout = s.kv.layout;
  const int dim = layout.head_dim;
  std::byte* keys = s.kv.piece(page) + layout.HeadOffset(head);
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
    const std::span<const float> key = k.row_span(row).subspan(channel, count);
    const std::span<const float> value = v.row_span(row).subspan(channel, count);
    PutAs(kernels, layout.k, key, keys, at, kPageTokens);
    PutAs(kernels, layout.v, value, values, at * dim, 1);
    if (HasNan(key) || HasNan(value)) PutNan(layout.k, keys, at);
  }
}

// One KV head of an open page into its sealed form. scratch: [kPageTokens · head_dim].
void SealHead(const AttentionKernels& kernels, const KvView& kv, int page, int head,
              const KvScales& scales, float* scratch) {
  const KvLayout& from = kv.layout;
  const KvLayout& to = kv.sealed;
  const std::byte* open = kv.piece(page) + from.HeadOffset(head);
  std::byte* sealed = kv.sealed_piece(page) + to.HeadOffset(head);
  std::byte* floats = kv.sealed_piece(page) + to.FloatOffset(head);
  const auto seal = [&](KvSide side, size_t open_at, size_t sealed_at) {
    const bool keys = side == KvSide::kKeys;
    float page_float = 0;
    kernels.seal({.open = keys ? from.k : from.v,
                  .format = keys ? to.k : to.v,
                  .side = side,
                  .head_dim = to.head_dim,
                  .from = open + open_at,
                  .scratch = scratch,
                  .to = sealed + sealed_at,
                  .page_float = &page_float,
                  .given_scale = keys ? scales.key : scales.value});
    if (!TraitsOf(keys ? to.k : to.v).page_float[keys ? 0 : 1]) return;
    std::memcpy(floats, &page_float, sizeof page_float);
    floats += sizeof page_float;
  };
  seal(KvSide::kKeys, 0, 0);
  seal(KvSide::kValues, from.KBytes(), to.KBytes());
}

// Pages [begin, end) of the units that a sequence's rows complete.
struct PageRange {
  int begin = 0;
  int end = 0;
};
PageRange CompletedPages(const AttentionSequence& s) {
  if (!s.kv.two_forms()) return {};
  const int unit = s.kv.unit_pages * kPageTokens;
  const int first = s.first.value();
  return {first / unit * s.kv.unit_pages, (first + s.rows) / unit * s.kv.unit_pages};
}

}  // namespace

void WriteKv(const KernelTable& kernels, ThreadPool& pool,
             std::span<const AttentionSequence> sequences, MatrixView<const float> k,
             MatrixView<const float> v) {
  WriteKv(kernels, pool, sequences, k, v, KvScales{});
}

void WriteKv(const KernelTable& kernels, ThreadPool& pool,
             std::span<const AttentionSequence> sequences, MatrixView<const float> k,
             MatrixView<const float> v, const KvScales& scales) {
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
  // So are the heads of the pages that are sealed then.
  const auto seal = [&](int thread, int threads) {
    std::vector<float> scratch;
    int number = 0;
    for (const AttentionSequence& s : sequences) {
      const PageRange pages = CompletedPages(s);
      NIBBLE_CHECK(std::cmp_less_equal(pages.end, s.kv.table.sealed.size()) ||
                   pages.begin >= pages.end);
      for (int page = pages.begin; page < pages.end; ++page) {
        if (s.kv.table.sealed[page] == kNoPage) continue;
        NIBBLE_CHECK(s.kv.table.pages[page] != kNoPage);
        for (int head = 0; head < s.kv.layout.kv_heads; ++head, ++number) {
          if (number % threads != thread) continue;
          scratch.resize(static_cast<size_t>(kPageTokens * s.kv.layout.head_dim));
          SealHead(*kernels.attention, s.kv, page, head, scales, scratch.data());
        }
      }
    }
  };
  const bool seals = std::ranges::any_of(sequences, [](const AttentionSequence& s) {
    const PageRange pages = CompletedPages(s);
    return pages.begin < pages.end;
  });
  if (pool.size() == 1 || (!seals && int64_t{rows} * k.cols <= kFewFloats)) {
    share(0, 1);
    if (seals) seal(0, 1);
  } else {
    pool.Run([&](int thread) {
      share(thread, pool.size());
      if (!seals) return;
      pool.Barrier(thread);
      seal(thread, pool.size());
    });
  }
}

}  // namespace nibble
