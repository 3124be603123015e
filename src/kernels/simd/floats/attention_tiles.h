#pragma once

// Register tiles of attention over pages of floats. In Q·Kᵀ the lanes are positions, in P·V
// channels; every accumulator is one element's chain in the order of ref/attention_ref.cc, so tiles
// may have any shape. Measured on a Zen 4 with AVX-512 (multiply-adds per second of its peak): 8
// rows × 2 registers 0.86, 4 rows × 4 registers 0.97, since loads and conversions are fewer per
// multiply.
#include "kernels/attention_kernels.h"
#include "kernels/simd/attention_ahead.h"
#include "kernels/simd/floats/math.h"

namespace nibble::NIBBLE_ISA_NS {
namespace {

constexpr int kLaneRegs = kPageTokens / kWidth;
// From this many rows on a tile takes them all, and kWideRegs registers: every f16 number is then
// converted once. AVX2 has not the registers: with one of positions it ran at 0.95 of two tiles.
constexpr int kWideFrom = kWideRegs > 1 ? 7 : kRowBlock + 1;
// Registers of a tile of kRows rows, and of positions in one that stays within a page.
template <int kRows>
constexpr int kRegsOf = kRows == kRowBlock ? kWideRegs : kTileRegs;
template <int kRows>
constexpr int kScoreRegs = kRegsOf<kRows> < kLaneRegs ? kRegsOf<kRows> : kLaneRegs;

// The same part of the pages ahead (attention_ahead.h); null when pages come from a cache anyway.
struct Ahead {
  const std::byte* near = nullptr;
  const std::byte* far = nullptr;
};

NIBBLE_INLINE Ahead AheadOf(const AttentionTask& task, int page, size_t offset) {
  return {PageAhead(task, page, kNearPages) + offset, PageAhead(task, page, kFarPages) + offset};
}

template <bool kFetch, size_t kBytes>
NIBBLE_INLINE void Fetch(const Ahead& ahead, size_t offset) {
  if constexpr (kFetch) {
    NIBBLE_UNROLL for (size_t line = 0; line < kBytes; line += 64) {
      __builtin_prefetch(ahead.near + offset + line, 0, 3);
      __builtin_prefetch(ahead.far + offset + line, 0, 2);
    }
  }
}

// A tile of kRegs registers from element `at` of a row on fetches for those that share its line.
template <class T, int kRegs>
NIBBLE_INLINE bool StartsLine(int at) {
  return kRegs * kWidth * sizeof(T) >= 64 || at * sizeof(T) % 64 == 0;
}

// s[page][r][j] = Σ_d k[page][d][j] q[d][r] for kRows rows and kRegs registers of positions from
// position j of the first page on; where they are more than a page has, of the second too.
template <class K, int kRows, int kRegs, bool kFetch>
NIBBLE_INLINE void ScoreTile(const K* const* k, int j, int head_dim, const float* q, float* s,
                             const Ahead* ahead) {
  constexpr int kPages = kRegs > kLaneRegs ? kRegs / kLaneRegs : 1;
  constexpr int kPageRegs = kRegs / kPages;
  Reg acc[kRows][kRegs];
  NIBBLE_UNROLL for (int r = 0; r < kRows; ++r) {
    NIBBLE_UNROLL for (int i = 0; i < kRegs; ++i) acc[r][i] = Set(0.0F);
  }
  for (int d = 0; d < head_dim; ++d) {
    const int at = d * kPageTokens + j;
    Reg key[kRegs];
    NIBBLE_UNROLL for (int page = 0; page < kPages; ++page) {
      Fetch<kFetch, kPageRegs * kWidth * sizeof(K)>(ahead[page], at * sizeof(K));
      NIBBLE_UNROLL for (int i = 0; i < kPageRegs; ++i) {
        key[page * kPageRegs + i] = Load(k[page] + at + i * kWidth);
      }
    }
    NIBBLE_UNROLL for (int r = 0; r < kRows; ++r) {
      const Reg query = Set(q[d * kRowBlock + r]);
      NIBBLE_UNROLL for (int i = 0; i < kRegs; ++i) acc[r][i] = Fma(key[i], query, acc[r][i]);
    }
  }
  NIBBLE_UNROLL for (int page = 0; page < kPages; ++page) {
    NIBBLE_UNROLL for (int r = 0; r < kRows; ++r) {
      NIBBLE_UNROLL for (int i = 0; i < kPageRegs; ++i) {
        Store(s + (page * kRowBlock + r) * kPageTokens + j + i * kWidth,
              acc[r][page * kPageRegs + i]);
      }
    }
  }
}

// All positions of one page, or of kScorePages pages, for kRows rows.
template <class K, int kRows, bool kFetch>
NIBBLE_INLINE void ScoreRows(const K* const* k, int count, int head_dim, const float* q, float* s,
                             const Ahead* ahead) {
  if constexpr (kRegsOf<kRows> == kScorePages * kLaneRegs) {
    if (count == kScorePages) {
      ScoreTile<K, kRows, kRegsOf<kRows>, kFetch>(k, 0, head_dim, q, s, ahead);
      return;
    }
  }
  constexpr int kRegs = kScoreRegs<kRows>;
  for (int page = 0; page < count; ++page) {
    float* to = s + page * kRowBlock * kPageTokens;
    for (int j = 0; j < kPageTokens; j += kRegs * kWidth) {
      if (StartsLine<K, kRegs>(j)) {
        ScoreTile<K, kRows, kRegs, kFetch>(k + page, j, head_dim, q, to, ahead + page);
      } else {
        ScoreTile<K, kRows, kRegs, false>(k + page, j, head_dim, q, to, ahead + page);
      }
    }
  }
}

template <class K, bool kFetch>
NIBBLE_INLINE void ScoreBlock(const AttentionTask& task, const K* const* k, int count, float* s,
                              const Ahead* ahead) {
  if (task.rows >= kWideFrom) {
    ScoreRows<K, kRowBlock, kFetch>(k, count, task.head_dim, task.q, s, ahead);
    return;
  }
  for (int r = 0; r < task.rows; r += kTileRows) {
    const int rows = task.rows - r;
    const float* q = task.q + r;
    float* to = s + r * kPageTokens;
    // The first tile of a block fetches.
    if (rows > 2) {
      if (r == 0) {
        ScoreRows<K, kTileRows, kFetch>(k, count, task.head_dim, q, to, ahead);
      } else {
        ScoreRows<K, kTileRows, false>(k, count, task.head_dim, q, to, ahead);
      }
    } else if (rows > 1) {
      ScoreRows<K, 2, kFetch>(k, count, task.head_dim, q, to, ahead);
    } else {
      ScoreRows<K, 1, kFetch>(k, count, task.head_dim, q, to, ahead);
    }
  }
}

template <class K>
void FloatScores(const AttentionTask& task, const PageForm& /*form*/, int page, int count,
                 float* s) {
  const K* k[kScorePages];
  Ahead ahead[kScorePages];
  for (int i = 0; i < count; ++i) {
    k[i] = reinterpret_cast<const K*>(task.pages[page + i]);
    ahead[i] = AheadOf(task, page + i + count - 1, 0);
  }
  if (task.prefetch) {
    ScoreBlock<K, true>(task, k, count, s, ahead);
  } else {
    ScoreBlock<K, false>(task, k, count, s, ahead);
  }
}

// All lines of a part of a page to come.
NIBBLE_INLINE void FetchAll(const AttentionTask& task, int page, size_t begin, size_t end) {
  if (!task.prefetch) return;
  const Ahead ahead = AheadOf(task, page, 0);
  for (size_t at = begin; at < end; at += 64) Fetch<true, 64>(ahead, at);
}

// What the float of a page of E4M3 codes is multiplied by: they are read as code · 2^-8.
constexpr float kFp8Unit = 256;

void Fp8Scores(const AttentionTask& task, const PageForm& form, int page, int count, float* s) {
  FloatScores<Fp8>(task, form, page, count, s);
  for (int i = 0; i < count; ++i, s += kRowBlock * kPageTokens) {
    const Reg factor = Set(FloatAt(task.pages[page + i] + form.k_float_offset) * kFp8Unit);
    for (int at = 0; at < task.rows * kPageTokens; at += kWidth) {
      Store(s + at, Mul(Load(s + at), factor));
    }
  }
}

// Sealed keys, unpacked into the first cache, in float arithmetic.
void SealedScores(const AttentionTask& task, const PageForm& form, int page, int count, float* s) {
  alignas(64) float factors[kPageTokens];
  for (int i = 0; i < count; ++i, s += kRowBlock * kPageTokens) {
    const std::byte* block = task.pages[page + i];
    FetchAll(task, page + i, 0, form.v_offset);
    form.unpack_k(block, FloatAt(block + form.k_float_offset), task.head_dim, task.page_scratch,
                  factors);
    const float* k = task.page_scratch;
    const Ahead none;
    ScoreBlock<float, false>(task, &k, 1, s, &none);
    for (int row = 0; row < task.rows; ++row) {
      NIBBLE_UNROLL for (int v = 0; v < kLaneRegs; ++v) {
        float* to = s + row * kPageTokens + v * kWidth;
        Store(to, Mul(Load(to), Load(factors + v * kWidth)));
      }
    }
  }
}

// Values [kPageTokens][channels] of a page.
template <class V>
struct Rows {
  const V* v;
  int channels;
};

// o[r][c …] += Σ_j p[r][j] v[j][c …] over the positions seen for kRows rows and kRegs registers of
// channels from channel c on, the last one with the remaining channels only if kTail.
template <class V, int kRows, int kRegs, bool kFetch, bool kTail>
NIBBLE_INLINE void ValueTile(const AttentionTask& task, const Rows<V>& v_rows, int c,
                             const PageWeights& weights, float* o, const Ahead& ahead) {
  const int o_stride = task.o_stride;
  const int tail = v_rows.channels - c;
  const V* v = v_rows.v + c;
  o += c;
  Reg acc[kRows][kRegs];
  NIBBLE_UNROLL for (int r = 0; r < kRows; ++r) {
    const Reg shrink = Set(weights.shrink[r]);
    NIBBLE_UNROLL for (int i = 0; i < kRegs; ++i) {
      acc[r][i] = Mul(Load(o + r * o_stride + i * kWidth), shrink);
    }
  }
  for (int j = weights.seen.begin; j < weights.seen.end; ++j) {
    const V* row = v + j * v_rows.channels;
    Fetch<kFetch, kRegs * kWidth * sizeof(V)>(ahead, (j * v_rows.channels + c) * sizeof(V));
    Reg value[kRegs];
    NIBBLE_UNROLL for (int i = 0; i < kRegs; ++i) {
      value[i] = kTail && i == kRegs - 1 ? LoadN(row + i * kWidth, tail) : Load(row + i * kWidth);
    }
    NIBBLE_UNROLL for (int r = 0; r < kRows; ++r) {
      const Reg weight = Set(weights.p[r * kPageTokens + j]);
      NIBBLE_UNROLL for (int i = 0; i < kRegs; ++i) acc[r][i] = Fma(value[i], weight, acc[r][i]);
    }
  }
  NIBBLE_UNROLL for (int r = 0; r < kRows; ++r) {
    NIBBLE_UNROLL for (int i = 0; i < kRegs; ++i) Store(o + r * o_stride + i * kWidth, acc[r][i]);
  }
}

template <class V, int kRows, bool kFetch>
NIBBLE_INLINE void ValueRows(const AttentionTask& task, const Rows<V>& v,
                             const PageWeights& weights, float* o, const Ahead& ahead) {
  const int dim = v.channels;
  constexpr int kRegs = kRegsOf<kRows>;
  int c = 0;
  for (; c + kRegs * kWidth <= dim; c += kRegs * kWidth) {
    if (StartsLine<V, kRegs>(c)) {
      ValueTile<V, kRows, kRegs, kFetch, false>(task, v, c, weights, o, ahead);
    } else {
      ValueTile<V, kRows, kRegs, false, false>(task, v, c, weights, o, ahead);
    }
  }
  if constexpr (kRegs > 2) {
    for (; c + 2 * kWidth <= dim; c += 2 * kWidth) {
      ValueTile<V, kRows, 2, kFetch, false>(task, v, c, weights, o, ahead);
    }
  }
  if constexpr (kRegs > 1) {
    for (; c + kWidth <= dim; c += kWidth) {
      ValueTile<V, kRows, 1, false, false>(task, v, c, weights, o, {});
    }
  }
  if (c < dim) ValueTile<V, kRows, 1, false, true>(task, v, c, weights, o, {});
}

template <class V, bool kFetch>
NIBBLE_INLINE void ValueBlock(const AttentionTask& task, const Rows<V>& v,
                              const PageWeights& weights, const Ahead& ahead) {
  if (task.rows >= kWideFrom) {
    ValueRows<V, kRowBlock, kFetch>(task, v, weights, task.o, ahead);
    return;
  }
  for (int r = 0; r < task.rows; r += kTileRows) {
    const int rows = task.rows - r;
    const PageWeights own = {weights.p + r * kPageTokens, weights.seen, weights.shrink + r};
    float* o = task.o + static_cast<ptrdiff_t>(r) * task.o_stride;
    if (rows > 2) {
      if (r == 0) {
        ValueRows<V, kTileRows, kFetch>(task, v, own, o, ahead);
      } else {
        ValueRows<V, kTileRows, false>(task, v, own, o, ahead);
      }
    } else if (rows > 1) {
      ValueRows<V, 2, kFetch>(task, v, own, o, ahead);
    } else {
      ValueRows<V, 1, kFetch>(task, v, own, o, ahead);
    }
  }
}

template <class V>
void FloatValues(const AttentionTask& task, const PageForm& form, int page,
                 const PageWeights& weights) {
  const Rows<V> v = {reinterpret_cast<const V*>(task.pages[page] + form.v_offset), task.head_dim};
  if (task.prefetch) {
    ValueBlock<V, true>(task, v, weights, AheadOf(task, page, form.v_offset));
  } else {
    ValueBlock<V, false>(task, v, weights, {});
  }
}

void Fp8Values(const AttentionTask& task, const PageForm& form, int page,
               const PageWeights& weights) {
  alignas(64) float p[kRowBlock * kPageTokens];
  const Reg factor = Set(FloatAt(task.pages[page] + form.v_float_offset) * kFp8Unit);
  for (int at = 0; at < task.rows * kPageTokens; at += kWidth) {
    Store(p + at, Mul(Load(weights.p + at), factor));
  }
  FloatValues<Fp8>(task, form, page, {p, weights.seen, weights.shrink});
}

// Sealed values, unpacked into the first cache, in float arithmetic.
void SealedValues(const AttentionTask& task, const PageForm& form, int page,
                  const PageWeights& weights) {
  alignas(64) float factors[kPageTokens];
  alignas(64) float p[kRowBlock * kPageTokens];
  const std::byte* base = task.pages[page];
  FetchAll(task, page, form.v_offset, form.k_float_offset);
  form.unpack_v(base + form.v_offset, FloatAt(base + form.v_float_offset), task.head_dim,
                task.page_scratch, factors);
  for (int row = 0; row < task.rows; ++row) {
    NIBBLE_UNROLL for (int v = 0; v < kLaneRegs; ++v) {
      const int at = row * kPageTokens + v * kWidth;
      Store(p + at, Mul(Load(weights.p + at), Load(factors + v * kWidth)));
    }
  }
  ValueBlock<float, false>(task, {task.page_scratch, task.o_stride},
                           {p, weights.seen, weights.shrink}, {});
}

}  // namespace
}  // namespace nibble::NIBBLE_ISA_NS
