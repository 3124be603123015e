#pragma once

#include <cstddef>
#include <cstdint>

#include "base/paging.h"
#include "format/kv_format.h"
#include "kernels/seal_block.h"
#include "platform/cpu.h"

namespace nibble {

inline constexpr int kRowBlock = 8;     // query rows that share a loaded page
inline constexpr int kSplitPages = 16;  // a split is 512 positions: fixed borders, so that a long
                                        // context can be shared among threads without other bits
inline constexpr int kScorePages = 2;   // most pages whose scores are computed together
inline constexpr float kMostWeight = 127;  // integer products: largest code of a weight

struct AttentionTask;
struct PageForm;

// A float of a page, wherever it lies. Static: objects of one instruction set may leak no symbol.
static inline float FloatAt(const std::byte* p) {
  float value = 0;
  __builtin_memcpy(&value, p, sizeof value);
  return value;
}

// Positions [begin, end) of a page.
struct PageSpan {
  int begin = 0;
  int end = 0;
};

// Of one page: weights p[kRowBlock][kPageTokens], zero outside the positions that any row sees. For
// a page-relative form they are relative to the row's largest score in the page, and `beta`
// [kRowBlock] makes them relative to m. `shrink` [kRowBlock]: by what the page made m grow, 1 where
// it did not; o is relative to the m before.
struct PageWeights {
  const float* p = nullptr;
  PageSpan seen;
  const float* shrink = nullptr;
  const float* beta = nullptr;
};

// s[count][kRowBlock][kPageTokens] = q · k of pages [page, page + count), count <= kScorePages.
using ScorePages = void (*)(const AttentionTask& task, const PageForm& form, int page, int count,
                            float* s);
// task.o = task.o · shrink + Σ p v of a page, for all rows.
using ValuePage = void (*)(const AttentionTask& task, const PageForm& form, int page,
                           const PageWeights& weights);

// A sealed block as floats, for float arithmetic: what its codes stand for in units of one factor
// per token, factors[kPageTokens]. Keys: x[head_dim rounded up to 16][kPageTokens]; values:
// x[kPageTokens][head_dim rounded up to 16].
using UnpackBlock = void (*)(const std::byte* block, float page_float, int head_dim, float* x,
                             float* factors);

// How pages are read.
struct PageForm {
  ScorePages score = nullptr;
  ValuePage value = nullptr;
  UnpackBlock unpack_k = nullptr;  // of forms whose score or value wants it
  UnpackBlock unpack_v = nullptr;
  bool page_relative = false;  // the weights that `value` takes
  size_t v_offset = 0;         // bytes from a page's K to its V,
  size_t k_float_offset = 0;   // and to its floats
  size_t v_float_offset = 0;
};

// The row block's query as bytes, for integer products: q ≈ code · scale, |code| <= 127.
struct IntQuery {
  const int32_t* q = nullptr;        // [head_dim rounded up to 16, / 4][kRowBlock] four codes each
  const float* scale = nullptr;      // [kRowBlock]; NaN where the row has a NaN or an infinity
  const int32_t* neg_sum = nullptr;  // [kRowBlock] - Σ codes
};

struct IntQueryBuffer {
  int32_t* q = nullptr;
  float* scale = nullptr;
  int32_t* neg_sum = nullptr;
};

// One row block over the pages of one split. Rows of a block are (token, head of the group) pairs
// of one KV head. What becomes of a row depends on its own query and position alone.
struct AttentionTask {
  const std::byte* const* pages = nullptr;  // K of this KV head in each page, ascending
  int page_count = 0;                       // pages to visit
  int known_pages = 0;                      // entries of `pages`: those beyond are prefetched only
  int sealed_pages = 0;                     // leading pages that are sealed
  PageForm sealed;
  PageForm open;
  IntQuery int_query;
  float* page_scratch = nullptr;  // [kPageTokens][o_stride]
  int first_position = 0;         // of pages[0], a multiple of 32
  int rows = 0;                   // 1 … kRowBlock
  int head_dim = 0;
  int window = 0;                  // 0: none
  float cap_log2e = 0;             // 0: scores are q·k; else cap_log2e · tanh(q·k)
  bool prefetch = false;           // the pages come from memory, not from a cache
  const int* positions = nullptr;  // [rows], ascending
  const float* q = nullptr;        // [head_dim][kRowBlock], scaled so that scores are base-2 logs
  // Results: per row the largest score m (-infinity if it saw nothing; a NaN among the scores is
  // not in m, but makes l and o NaN), l = Σ exp2(s - m) and
  // o[kRowBlock][o_stride] = Σ exp2(s - m) v. o_stride: head_dim rounded up to 16.
  float* o = nullptr;
  int o_stride = 0;
  float* m = nullptr;
  float* l = nullptr;
};

struct AttentionKernels {
  void (*run)(const AttentionTask& task);
  // By KvFormat: float products, and integer ones where the format has them.
  ScorePages score[kKvFormatCount];
  ValuePage value[kKvFormatCount];
  ScorePages int_score[kKvFormatCount];
  ValuePage int_value[kKvFormatCount];
  UnpackBlock unpack[kKvFormatCount][2];  // by side; integer formats
  // q[d][r] = rows[r][d] · scale for kRowBlock rows.
  void (*gather)(const float* const* rows, float scale, int head_dim, float* q);
  // That query as bytes (kernels/quantise_query.h).
  void (*quantise_query)(const float* q, int head_dim, const IntQueryBuffer& to);
  // acc = acc · a + x · b
  void (*combine)(const float* x, float b, float a, int n, float* acc);
  // out = x · inverse, never -0, and always the same NaN
  void (*finish)(const float* x, float inverse, int n, float* out);
  // to = x as f16: what is too large becomes ±65504, a NaN becomes 0.
  void (*to_half)(const float* x, int n, uint16_t* to);
  void (*seal)(const SealBlock& block);
};

const AttentionKernels* AttentionKernelsFor(Isa isa);

// Positions of the task's page `page` that a row sees; begin >= end: none. Static: this header is
// also compiled for lesser and greater instruction sets.
__attribute__((always_inline)) static inline PageSpan VisibleIn(const AttentionTask& task, int row,
                                                                int page) {
  const int base = task.first_position + page * kPageTokens;
  const int last = task.positions[row] - base;
  const int first = task.window > 0 ? last - task.window + 1 : 0;
  return {first > 0 ? first : 0, last < kPageTokens - 1 ? last + 1 : kPageTokens};
}

// Every row sees all positions of the task's page `page`.
__attribute__((always_inline)) static inline bool AllSee(const AttentionTask& task, int page) {
  const int base = task.first_position + page * kPageTokens;
  const int first_row = task.positions[0];
  const int last_row = task.positions[task.rows - 1];
  return base + kPageTokens <= first_row + 1 && (task.window <= 0 || base > last_row - task.window);
}

}  // namespace nibble
