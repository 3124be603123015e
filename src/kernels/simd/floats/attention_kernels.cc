// The vector form of ref/attention_ref.cc. In Q·Kᵀ the lanes are positions, in P·V channels; every
// accumulator is one element's chain in the twin's order, so tiles may have any shape.
#include "kernels/attention_kernels.h"

#include <cstdint>

#include "kernels/kv_view.h"
#include "kernels/simd/floats/math.h"

namespace nibble::NIBBLE_ISA_NS {
namespace {

constexpr int kLaneRegs = kPageTokens / kWidth;
constexpr float kNothing = -math_constants::kInfinity;

// What a page leaves behind for the next, beside the task's o and m.
struct Scratch {
  alignas(64) float p[kRowBlock][kPageTokens];  // scores, then weights
  alignas(64) float l[kRowBlock][kPageTokens];  // lanes of the denominator
};

// Lines of the page to come (near: into the first cache) and of one further on (far: into the
// second); null when the page comes from a cache anyway.
struct Ahead {
  const std::byte* near = nullptr;
  const std::byte* far = nullptr;
};

template <bool kFetch, size_t kBytes>
NIBBLE_INLINE void Fetch(const Ahead& ahead, size_t offset) {
  if constexpr (kFetch) {
    NIBBLE_UNROLL for (size_t line = 0; line < kBytes; line += 64) {
      __builtin_prefetch(ahead.near + offset + line, 0, 3);
      __builtin_prefetch(ahead.far + offset + line, 0, 2);
    }
  }
}

// s[r][j] = Σ_d k[d][j] q[d][r] for kRows rows.
template <class K, int kRows, bool kFetch>
NIBBLE_INLINE void ScoreTile(const K* k, int head_dim, const float* q, float* s,
                             const Ahead& ahead) {
  for (int j = 0; j < kPageTokens; j += kTileRegs * kWidth) {
    Reg acc[kRows][kTileRegs];
    NIBBLE_UNROLL for (int r = 0; r < kRows; ++r) {
      NIBBLE_UNROLL for (int i = 0; i < kTileRegs; ++i) acc[r][i] = Set(0.0F);
    }
    for (int d = 0; d < head_dim; ++d) {
      const K* row = k + d * kPageTokens + j;
      Fetch<kFetch, kTileRegs * kWidth * sizeof(K)>(ahead, (d * kPageTokens + j) * sizeof(K));
      Reg key[kTileRegs];
      NIBBLE_UNROLL for (int i = 0; i < kTileRegs; ++i) key[i] = Load(row + i * kWidth);
      NIBBLE_UNROLL for (int r = 0; r < kRows; ++r) {
        const Reg query = Set(q[d * kRowBlock + r]);
        NIBBLE_UNROLL for (int i = 0; i < kTileRegs; ++i) {
          acc[r][i] = Fma(key[i], query, acc[r][i]);
        }
      }
    }
    NIBBLE_UNROLL for (int r = 0; r < kRows; ++r) {
      NIBBLE_UNROLL for (int i = 0; i < kTileRegs; ++i) {
        Store(s + r * kPageTokens + j + i * kWidth, acc[r][i]);
      }
    }
  }
}

// Positions [begin, end) of a page that a row sees.
struct Visible {
  int begin;
  int end;
};

// p[r][j] of some rows, zero outside the positions that any row of the block sees.
struct Weights {
  const float* p;
  Visible seen;
};

// o[r][c …] += Σ_j p[r][j] v[j][c …] over the positions seen for kRows rows and kRegs registers of
// channels from channel c on, the last one with the head's remaining channels only if kTail.
template <class V, int kRows, int kRegs, bool kFetch, bool kTail>
NIBBLE_INLINE void ValueTile(const AttentionTask& task, const V* v, int c, const Weights& weights,
                             float* o, const Ahead& ahead) {
  const int head_dim = task.head_dim;
  const int o_stride = task.o_stride;
  const int tail = head_dim - c;
  v += c;
  o += c;
  Reg acc[kRows][kRegs];
  NIBBLE_UNROLL for (int r = 0; r < kRows; ++r) {
    NIBBLE_UNROLL for (int i = 0; i < kRegs; ++i) acc[r][i] = Load(o + r * o_stride + i * kWidth);
  }
  for (int j = weights.seen.begin; j < weights.seen.end; ++j) {
    const V* row = v + j * head_dim;
    Fetch<kFetch, kRegs * kWidth * sizeof(V)>(ahead, j * kRegs * kWidth * sizeof(V));
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

NIBBLE_INLINE Visible VisibleIn(const AttentionTask& task, int row, int page) {
  const int base = task.first_position + page * kPageTokens;
  const int last = task.positions[row] - base;
  const int first = task.window > 0 ? last - task.window + 1 : 0;
  return {first > 0 ? first : 0, last < kPageTokens - 1 ? last + 1 : kPageTokens};
}

NIBBLE_INLINE void Multiply(Reg factor, float* x, int n) {  // n a multiple of 16
  for (int i = 0; i < n; i += kWidth) Store(x + i, Mul(Load(x + i), factor));
}

alignas(64) constexpr float kIota[kPageTokens] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                                  11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                                                  22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

// Turns a row's scores into weights and adds them to its denominator.
NIBBLE_INLINE void SoftmaxRow(const AttentionTask& task, int row, Visible visible, float* p,
                              float* l) {
  Reg s[kLaneRegs];
  NIBBLE_UNROLL for (int i = 0; i < kLaneRegs; ++i) s[i] = Load(p + i * kWidth);
  if (task.cap_log2e != 0) {
    const Reg cap = Set(task.cap_log2e);
    NIBBLE_UNROLL for (int i = 0; i < kLaneRegs; ++i) s[i] = Mul(cap, Tanh(s[i]));
  }
  const Reg nothing = Set(kNothing);
  if (visible.begin > 0 || visible.end < kPageTokens) {
    const Reg begin = Set(static_cast<float>(visible.begin));
    const Reg end = Set(static_cast<float>(visible.end));
    NIBBLE_UNROLL for (int i = 0; i < kLaneRegs; ++i) {
      const Reg lane = Load(kIota + i * kWidth);
      s[i] = Select(Less(lane, begin), nothing, Select(Less(lane, end), s[i], nothing));
    }
  }
  Reg top = Max(s[0], nothing);
  NIBBLE_UNROLL for (int i = 1; i < kLaneRegs; ++i) top = Max(s[i], top);
  float m = task.m[row];
  if (AnyMore(top, Set(m))) [[unlikely]] {
    const float raised = TreeMax(top);
    const Reg shrink = Exp2(Set(m - raised), math_constants::kSoftmaxMin);
    Multiply(shrink, l, kPageTokens);
    Multiply(shrink, task.o + static_cast<ptrdiff_t>(row) * task.o_stride, task.o_stride);
    task.m[row] = m = raised;
  }
  const Reg shift = Set(m);
  NIBBLE_UNROLL for (int i = 0; i < kLaneRegs; ++i) {
    const Reg weight = Exp2(Sub(s[i], shift), math_constants::kSoftmaxMin);
    Store(p + i * kWidth, weight);
    Store(l + i * kWidth, Add(Load(l + i * kWidth), weight));
  }
}

template <class K, bool kFetch>
NIBBLE_INLINE void Scores(const AttentionTask& task, const K* k, Scratch& scratch, Ahead ahead) {
  for (int r = 0; r < task.rows; r += kTileRows) {
    const int rows = task.rows - r;
    const float* q = task.q + r;
    float* s = scratch.p[r];
    if (rows > 4 && kTileRows > 4) {
      ScoreTile<K, kTileRows, kFetch>(k, task.head_dim, q, s, ahead);
    } else if (rows > 2) {
      ScoreTile<K, 4, kFetch>(k, task.head_dim, q, s, ahead);
    } else if (rows > 1) {
      ScoreTile<K, 2, kFetch>(k, task.head_dim, q, s, ahead);
    } else {
      ScoreTile<K, 1, kFetch>(k, task.head_dim, q, s, ahead);
    }
  }
}

template <class V, int kRows, bool kFetch>
NIBBLE_INLINE void ValueRows(const AttentionTask& task, const V* v, const Weights& weights,
                             float* o, Ahead ahead) {
  constexpr int kStep = kTileRegs * kWidth;
  const int dim = task.head_dim;
  int c = 0;
  for (; c + kStep <= dim; c += kStep) {
    ValueTile<V, kRows, kTileRegs, kFetch, false>(task, v, c, weights, o, ahead);
    if constexpr (kFetch) {
      ahead.near += kPageTokens * kStep * sizeof(V);
      ahead.far += kPageTokens * kStep * sizeof(V);
    }
  }
  for (; c + kWidth <= dim; c += kWidth) {
    ValueTile<V, kRows, 1, false, false>(task, v, c, weights, o, {});
  }
  if (c < dim) {
    ValueTile<V, kRows, 1, false, true>(task, v, c, weights, o, {});
  }
}

template <class V, bool kFetch>
NIBBLE_INLINE void Values(const AttentionTask& task, const V* v, const Scratch& scratch,
                          Visible seen, Ahead ahead) {
  for (int r = 0; r < task.rows; r += kTileRows) {
    const int rows = task.rows - r;
    const Weights weights = {scratch.p[r], seen};
    float* o = task.o + static_cast<ptrdiff_t>(r) * task.o_stride;
    if (rows > 4 && kTileRows > 4) {
      ValueRows<V, kTileRows, kFetch>(task, v, weights, o, ahead);
    } else if (rows > 2) {
      ValueRows<V, 4, kFetch>(task, v, weights, o, ahead);
    } else if (rows > 1) {
      ValueRows<V, 2, kFetch>(task, v, weights, o, ahead);
    } else {
      ValueRows<V, 1, kFetch>(task, v, weights, o, ahead);
    }
  }
}

template <class K, class V, bool kFetch>
void RunPages(const AttentionTask& task, Scratch& scratch) {
  for (int page = 0; page < task.page_count; ++page) {
    Ahead ahead;
    if constexpr (kFetch) {
      const int last = task.known_pages - 1;
      ahead.near = task.pages[page + 1 < last ? page + 1 : last];
      ahead.far = task.pages[page + 6 < last ? page + 6 : last];
    }
    const auto* k = reinterpret_cast<const K*>(task.pages[page]);
    const auto* v = reinterpret_cast<const V*>(task.pages[page] + task.v_offset);
    Scores<K, kFetch>(task, k, scratch, ahead);
    Visible seen = {kPageTokens, 0};
    for (int row = 0; row < task.rows; ++row) {
      const Visible visible = VisibleIn(task, row, page);
      if (visible.begin >= visible.end) {
        NIBBLE_UNROLL for (int i = 0; i < kLaneRegs; ++i) {
          Store(scratch.p[row] + i * kWidth, Set(0.0F));
        }
        continue;
      }
      seen.begin = visible.begin < seen.begin ? visible.begin : seen.begin;
      seen.end = visible.end > seen.end ? visible.end : seen.end;
      SoftmaxRow(task, row, visible, scratch.p[row], scratch.l[row]);
    }
    if constexpr (kFetch) {
      ahead.near += task.v_offset;
      ahead.far += task.v_offset;
    }
    Values<V, kFetch>(task, v, scratch, seen, ahead);
  }
}

template <class K, class V>
void Run(const AttentionTask& task) {
  Scratch scratch;
  const Reg zero = Set(0.0F);
  for (int row = 0; row < kRowBlock; ++row) {
    for (int i = 0; i < kPageTokens; i += kWidth) {
      Store(scratch.l[row] + i, zero);
      Store(scratch.p[row] + i, zero);
    }
    float* o = task.o + static_cast<ptrdiff_t>(row) * task.o_stride;
    for (int i = 0; i < task.o_stride; i += kWidth) Store(o + i, zero);
    task.m[row] = kNothing;
  }
  if (task.prefetch) {
    RunPages<K, V, true>(task, scratch);
  } else {
    RunPages<K, V, false>(task, scratch);
  }
  for (int row = 0; row < task.rows; ++row) {
    Reg lanes[kLaneRegs];
    NIBBLE_UNROLL for (int i = 0; i < kLaneRegs; ++i) {
      lanes[i] = Load(scratch.l[row] + i * kWidth);
    }
    NIBBLE_UNROLL for (int half = kLaneRegs / 2; half > 0; half /= 2) {
      NIBBLE_UNROLL for (int i = 0; i < half; ++i) lanes[i] = Add(lanes[i], lanes[i + half]);
    }
    task.l[row] = TreeSum(lanes[0]);
  }
}

void Combine(const float* x, float b, float a, int n, float* acc) {
  const Reg factor = Set(b);
  const Reg shrink = Set(a);
  int i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    Store(acc + i, Fma(Load(x + i), factor, Mul(Load(acc + i), shrink)));
  }
  if (i < n) {
    const int left = n - i;
    StoreN(acc + i, Fma(LoadN(x + i, left), factor, Mul(LoadN(acc + i, left), shrink)), left);
  }
}

void Finish(const float* x, float inverse, int n, float* out) {
  const Reg factor = Set(inverse);
  const Reg zero = Set(0.0F);
  const Reg nan = Set(__builtin_nanf(""));
  const auto scaled = [&](Reg v) {
    const Reg value = Add(Mul(v, factor), zero);
    return Select(Equal(value, value), value, nan);
  };
  int i = 0;
  for (; i + kWidth <= n; i += kWidth) Store(out + i, scaled(Load(x + i)));
  if (i < n) StoreN(out + i, scaled(LoadN(x + i, n - i)), n - i);
}

void ToHalf(const float* x, int n, uint16_t* to) {
  constexpr float kMost = 65504;
  const auto convert = [](Reg v) {
    const Reg number = Select(Equal(v, v), v, Set(0.0F));
    return Max(Set(-kMost), Min(Set(kMost), number));
  };
  int i = 0;
  for (; i + kWidth <= n; i += kWidth) StoreHalf(to + i, convert(Load(x + i)));
  if (i < n) {
    uint16_t tail[kWidth];
    StoreHalf(tail, convert(LoadN(x + i, n - i)));
    for (int t = 0; i + t < n; ++t) to[i + t] = tail[t];
  }
}

}  // namespace

extern const AttentionKernels kAttentionKernels;
const AttentionKernels kAttentionKernels = {
    .run = {{Run<float, float>, Run<float, uint16_t>},
            {Run<uint16_t, float>, Run<uint16_t, uint16_t>}},
    .combine = Combine,
    .finish = Finish,
    .to_half = ToHalf,
};

}  // namespace nibble::NIBBLE_ISA_NS
