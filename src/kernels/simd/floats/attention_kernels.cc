// The vector form of ref/attention_ref.cc: the walk over pages and the softmax. Scores and products
// with values: attention_tiles.h.
#include "kernels/attention_kernels.h"

#include <cstdint>

#include "kernels/simd/floats/attention_tiles.h"
#include "kernels/simd/floats/math.h"

namespace nibble::NIBBLE_ISA_NS {
namespace {

constexpr float kNothing = -math_constants::kInfinity;

constexpr int kRowLanes = kRowBlock > kWidth ? kRowBlock : kWidth;

// What a page leaves behind for the next, beside the task's o.
struct Scratch {
  alignas(64) float p[kScorePages][kRowBlock][kPageTokens];  // scores, then weights
  alignas(64) float l[kRowBlock][kPageTokens];               // lanes of the denominator
  // By row, of the page; the last lanes are there for a register.
  alignas(64) float top[kRowLanes];
  alignas(64) float m[kRowLanes];
  alignas(64) float beta[kRowLanes];
  bool sees[kRowBlock];
};

NIBBLE_INLINE void Multiply(Reg factor, float* x, int n) {  // n a multiple of 16
  for (int i = 0; i < n; i += kWidth) Store(x + i, Mul(Load(x + i), factor));
}

alignas(64) constexpr float kIota[kPageTokens] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                                  11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                                                  22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

NIBBLE_INLINE void Cap(float cap_log2e, Reg* s) {
  const Reg cap = Set(cap_log2e);
  NIBBLE_UNROLL for (int i = 0; i < kLaneRegs; ++i) s[i] = Mul(cap, Tanh(s[i]));
}

NIBBLE_INLINE void MaskOutside(PageSpan visible, Reg* s) {
  const Reg nothing = Set(kNothing);
  const Reg begin = Set(static_cast<float>(visible.begin));
  const Reg end = Set(static_cast<float>(visible.end));
  NIBBLE_UNROLL for (int i = 0; i < kLaneRegs; ++i) {
    const Reg lane = Load(kIota + i * kWidth);
    s[i] = Select(Less(lane, begin), nothing, Select(Less(lane, end), s[i], nothing));
  }
}

NIBBLE_INLINE Reg MaskedScores(const AttentionTask& task, PageSpan visible, const float* p,
                               Reg* s) {
  NIBBLE_UNROLL for (int i = 0; i < kLaneRegs; ++i) s[i] = Load(p + i * kWidth);
  if (task.cap_log2e != 0) Cap(task.cap_log2e, s);
  if (visible.begin > 0 || visible.end < kPageTokens) MaskOutside(visible, s);
  Reg most = Max(s[0], Set(kNothing));
  NIBBLE_UNROLL for (int i = 1; i < kLaneRegs; ++i) most = Max(s[i], most);
  return most;
}

NIBBLE_INLINE void Shrink(const AttentionTask& task, int row, float factor, float* l) {
  const Reg shrink = Set(factor);
  Multiply(shrink, l, kPageTokens);
  Multiply(shrink, task.o + static_cast<ptrdiff_t>(row) * task.o_stride, task.o_stride);
}

// Turns a row's scores into weights relative to m and adds them to its denominator.
NIBBLE_INLINE void SoftmaxRow(const AttentionTask& task, int row, PageSpan visible, float* p,
                              Scratch& scratch) {
  float* l = scratch.l[row];
  Reg s[kLaneRegs];
  const Reg most = MaskedScores(task, visible, p, s);
  float m = scratch.m[row];
  if (AnyMore(most, Set(m))) [[unlikely]] {
    const float top = TreeMax(most);
    Shrink(task, row, First(Exp2OfMinus(Set(m - top), math_constants::kSoftmaxMin)), l);
    scratch.m[row] = m = top;
  }
  const Reg shift = Set(m);
  NIBBLE_UNROLL for (int i = 0; i < kLaneRegs; ++i) {
    const Reg weight = Exp2OfMinus(Sub(s[i], shift), math_constants::kSoftmaxMin);
    Store(p + i * kWidth, weight);
    Store(l + i * kWidth, Add(Load(l + i * kWidth), weight));
  }
}

// Positions that a row sees join those that some row sees.
NIBBLE_INLINE bool Join(PageSpan visible, PageSpan& seen) {
  if (visible.begin >= visible.end) return false;
  seen.begin = visible.begin < seen.begin ? visible.begin : seen.begin;
  seen.end = visible.end > seen.end ? visible.end : seen.end;
  return true;
}

// All rows' scores of a page become weights relative to m.
NIBBLE_INLINE PageSpan SoftmaxPage(const AttentionTask& task, int page, float (*p)[kPageTokens],
                                   Scratch& scratch) {
  PageSpan seen = {kPageTokens, 0};
  for (int row = 0; row < task.rows; ++row) {
    const PageSpan visible = VisibleIn(task, row, page);
    if (Join(visible, seen)) {
      SoftmaxRow(task, row, visible, p[row], scratch);
    } else {
      NIBBLE_UNROLL for (int i = 0; i < kLaneRegs; ++i) Store(p[row] + i * kWidth, Set(0.0F));
    }
  }
  return seen;
}

// The same relative to each row's largest score in the page. m, and what it shrinks by and beta are
// computed for all rows at once.
NIBBLE_INLINE PageSpan RelativePage(const AttentionTask& task, int page, float (*p)[kPageTokens],
                                    Scratch& scratch) {
  PageSpan seen = {kPageTokens, 0};
  for (int row = 0; row < task.rows; ++row) {
    const PageSpan visible = VisibleIn(task, row, page);
    Reg s[kLaneRegs];
    NIBBLE_UNROLL for (int i = 0; i < kLaneRegs; ++i) s[i] = Set(kNothing);
    float top = kNothing;
    if (Join(visible, seen)) top = TreeMax(MaskedScores(task, visible, p[row], s));
    scratch.top[row] = top;
    scratch.sees[row] = visible.begin < visible.end;
    NIBBLE_UNROLL for (int i = 0; i < kLaneRegs; ++i) Store(p[row] + i * kWidth, s[i]);
  }
  alignas(64) float shrink[kRowLanes];
  bool raises = false;
  for (int row = 0; row < kRowBlock; row += kWidth) {
    const Reg top = Load(scratch.top + row);
    const Reg m = Load(scratch.m + row);
    const Mask more = Less(m, top);
    const Reg raised = Select(more, top, m);
    raises = raises || AnyMore(top, m);
    Store(shrink + row, Exp2OfMinus(Sub(m, raised), math_constants::kSoftmaxMin));
    const Reg beta = Exp2OfMinus(Sub(top, m), math_constants::kSoftmaxMin);
    Store(scratch.beta + row, Select(more, Set(1.0F), beta));
  }
  if (raises) [[unlikely]] {
    for (int row = 0; row < task.rows; ++row) {
      if (scratch.top[row] <= scratch.m[row] || !scratch.sees[row]) continue;
      Shrink(task, row, shrink[row], scratch.l[row]);
      scratch.m[row] = scratch.top[row];
    }
  }
  for (int row = 0; row < task.rows; ++row) {
    if (!scratch.sees[row]) {
      NIBBLE_UNROLL for (int i = 0; i < kLaneRegs; ++i) Store(p[row] + i * kWidth, Set(0.0F));
      scratch.beta[row] = 0;
      continue;
    }
    const Reg shift = Set(scratch.top[row]);
    const Reg factor = Set(scratch.beta[row]);
    NIBBLE_UNROLL for (int i = 0; i < kLaneRegs; ++i) {
      float* to = p[row] + i * kWidth;
      float* l = scratch.l[row] + i * kWidth;
      const Reg weight = Exp2OfMinus(Sub(Load(to), shift), math_constants::kSoftmaxMin);
      Store(to, weight);
      Store(l, Fma(weight, factor, Load(l)));
    }
  }
  return seen;
}

void RunPages(const AttentionTask& task, const PageForm& form, int begin, int end,
              Scratch& scratch) {
  const int most = task.prefetch ? 1 : kScorePages;
  int count = 0;
  for (int page = begin; page < end; page += count) {
    count = end - page < most ? end - page : most;
    form.score(task, form, page, count, scratch.p[0][0]);
    for (int i = 0; i < count; ++i) {
      const PageSpan seen = form.page_relative ? RelativePage(task, page + i, scratch.p[i], scratch)
                                               : SoftmaxPage(task, page + i, scratch.p[i], scratch);
      form.value(task, form, page + i, {scratch.p[i][0], seen, scratch.beta});
    }
  }
}

void Run(const AttentionTask& task) {
  Scratch scratch;
  const Reg zero = Set(0.0F);
  for (int row = 0; row < kRowBlock; ++row) {
    for (int i = 0; i < kPageTokens; i += kWidth) {
      Store(scratch.l[row] + i, zero);
      for (auto& page : scratch.p) Store(page[row] + i, zero);
    }
    float* o = task.o + static_cast<ptrdiff_t>(row) * task.o_stride;
    for (int i = 0; i < task.o_stride; i += kWidth) Store(o + i, zero);
  }
  for (int row = 0; row < kRowLanes; row += kWidth) {
    Store(scratch.m + row, Set(kNothing));
    Store(scratch.top + row, Set(kNothing));
  }
  RunPages(task, task.sealed, 0, task.sealed_pages, scratch);
  RunPages(task, task.open, task.sealed_pages, task.page_count, scratch);
  for (int row = 0; row < task.rows; ++row) {
    Reg lanes[kLaneRegs];
    NIBBLE_UNROLL for (int i = 0; i < kLaneRegs; ++i) {
      lanes[i] = Load(scratch.l[row] + i * kWidth);
    }
    NIBBLE_UNROLL for (int half = kLaneRegs / 2; half > 0; half /= 2) {
      NIBBLE_UNROLL for (int i = 0; i < half; ++i) lanes[i] = Add(lanes[i], lanes[i + half]);
    }
    task.l[row] = TreeSum(lanes[0]);
    task.m[row] = scratch.m[row];
  }
}

void Gather(const float* const* rows, float scale, int head_dim, float* q) {
  const float* r[kRowBlock];
  for (int i = 0; i < kRowBlock; ++i) r[i] = rows[i];
  for (int d = 0; d < head_dim; ++d) {
    NIBBLE_UNROLL for (int i = 0; i < kRowBlock; ++i) q[d * kRowBlock + i] = r[i][d] * scale;
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
    .run = Run,
    .score = {FloatScores<float>, FloatScores<uint16_t>, Fp8Scores, SealedScores, SealedScores,
              SealedScores, SealedScores},
    .value = {FloatValues<float>, FloatValues<uint16_t>, Fp8Values, SealedValues, SealedValues,
              SealedValues, SealedValues},
    .int_score = {},
    .int_value = {},
    .unpack = {},
    .gather = Gather,
    .combine = Combine,
    .finish = Finish,
    .to_half = ToHalf,
};

}  // namespace nibble::NIBBLE_ISA_NS
