// The vector form of ref/attention_ref.cc: the walk over pages and the softmax. Scores and products
// with values: attention_tiles.h.
#include "kernels/attention_kernels.h"

#include <cstdint>

#include "kernels/quantise_query.h"
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
  // By row; the last lanes are there for a register.
  alignas(64) float m[kRowLanes];
  alignas(64) float top[kRowLanes];     // largest score of the page
  alignas(64) float shrink[kRowLanes];  // PageWeights
  alignas(64) float beta[kRowLanes];
  bool sees[kRowBlock];
};

alignas(64) constexpr float kIota[kPageTokens] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                                  11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                                                  22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

NIBBLE_INLINE void Cap(const AttentionTask& task, float* p) {
  const Reg cap = Set(task.cap_log2e);
  for (int i = 0; i < task.rows * kPageTokens; i += kWidth) {
    Store(p + i, Mul(cap, Tanh(Load(p + i))));
  }
}

NIBBLE_INLINE void MaskOutside(PageSpan visible, float* p) {
  const Reg nothing = Set(kNothing);
  const Reg begin = Set(static_cast<float>(visible.begin));
  const Reg end = Set(static_cast<float>(visible.end));
  for (int i = 0; i < kPageTokens; i += kWidth) {
    const Reg lane = Load(kIota + i);
    const Reg below = Select(Less(lane, end), Load(p + i), nothing);
    Store(p + i, Select(Less(lane, begin), nothing, below));
  }
}

// Scores that a row does not see become -infinity. Returns the positions that any row sees.
NIBBLE_INLINE PageSpan MaskPage(const AttentionTask& task, int page, float (*p)[kPageTokens],
                                Scratch& scratch) {
  PageSpan seen = {kPageTokens, 0};
  for (int row = 0; row < task.rows; ++row) {
    const PageSpan visible = VisibleIn(task, row, page);
    scratch.sees[row] = visible.begin < visible.end;
    MaskOutside(visible, p[row]);
    if (!scratch.sees[row]) continue;
    seen.begin = visible.begin < seen.begin ? visible.begin : seen.begin;
    seen.end = visible.end > seen.end ? visible.end : seen.end;
  }
  return seen;
}

// Each row's largest score, at least -infinity whatever is NaN.
NIBBLE_INLINE void LargestScores(int rows, const float (*p)[kPageTokens], float* top) {
  const auto largest = [&](int row) {
    Reg most = Max(Load(p[row]), Set(kNothing));
    NIBBLE_UNROLL for (int i = 1; i < kLaneRegs; ++i) most = Max(Load(p[row] + i * kWidth), most);
    return most;
  };
  if (rows > 2) {
    Reg most[kRowBlock];
    NIBBLE_UNROLL for (int row = 0; row < kRowBlock; ++row) most[row] = largest(row);
    MaxOfEight(most, top);
  } else {
    for (int row = 0; row < rows; ++row) top[row] = TreeMax(largest(row));
  }
}

// m takes the page's largest scores, of all rows at once. Without a branch: in a split of 16 pages
// most pages raise some row's m.
template <bool kRelative>
NIBBLE_INLINE void Raise(Scratch& scratch) {
  NIBBLE_UNROLL for (int row = 0; row < kRowBlock; row += kWidth) {
    const Reg top = Load(scratch.top + row);
    const Reg m = Load(scratch.m + row);
    const Mask more = Less(m, top);
    const Reg shrink = Exp2OfMinus(Sub(m, top), math_constants::kSoftmaxMin);
    Store(scratch.shrink + row, Select(more, shrink, Set(1.0F)));
    Store(scratch.m + row, Select(more, top, m));
    if constexpr (kRelative) {
      const Reg beta = Exp2OfMinus(Sub(top, m), math_constants::kSoftmaxMin);
      Store(scratch.beta + row, Select(more, Set(1.0F), beta));
    }
  }
}

// A row's scores become weights relative to m, or to the row's largest score in the page, and are
// added to its denominator.
template <bool kRelative>
NIBBLE_INLINE void Weigh(int row, float* p, Scratch& scratch) {
  const Reg shift = Set(kRelative ? scratch.top[row] : scratch.m[row]);
  const Reg shrink = Set(scratch.shrink[row]);
  const Reg beta = Set(scratch.beta[row]);
  float* l = scratch.l[row];
  NIBBLE_UNROLL for (int i = 0; i < kPageTokens; i += kWidth) {
    const Reg weight = Exp2OfMinus(Sub(Load(p + i), shift), math_constants::kSoftmaxMin);
    const Reg sum = Mul(Load(l + i), shrink);
    Store(p + i, weight);
    Store(l + i, kRelative ? Fma(weight, beta, sum) : Add(sum, weight));
  }
}

NIBBLE_INLINE void NoWeights(int row, float* p, Scratch& scratch) {
  NIBBLE_UNROLL for (int i = 0; i < kPageTokens; i += kWidth) Store(p + i, Set(0.0F));
  scratch.beta[row] = 0;
}

// All rows' scores of a page become weights.
template <bool kRelative>
NIBBLE_INLINE PageSpan SoftmaxPage(const AttentionTask& task, int page, float (*p)[kPageTokens],
                                   Scratch& scratch) {
  if (task.cap_log2e != 0) Cap(task, p[0]);
  const bool all_seen = AllSee(task, page);
  const PageSpan seen = all_seen ? PageSpan{0, kPageTokens} : MaskPage(task, page, p, scratch);
  LargestScores(task.rows, p, scratch.top);
  Raise<kRelative>(scratch);
  for (int row = 0; row < task.rows; ++row) {
    if (all_seen || scratch.sees[row]) {
      Weigh<kRelative>(row, p[row], scratch);
    } else {
      NoWeights(row, p[row], scratch);
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
      const PageSpan seen = form.page_relative
                                ? SoftmaxPage<true>(task, page + i, scratch.p[i], scratch)
                                : SoftmaxPage<false>(task, page + i, scratch.p[i], scratch);
      form.value(task, form, page + i, {scratch.p[i][0], seen, scratch.shrink, scratch.beta});
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
    Store(scratch.beta + row, zero);
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

void QuantiseQuery(const float* q, int head_dim, const IntQueryBuffer& to) {
  QuantiseQueryRows(q, head_dim, to);
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

void Seal(const SealBlock& block);  // seal.cc

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
    .quantise_query = QuantiseQuery,
    .combine = Combine,
    .finish = Finish,
    .to_half = ToHalf,
    .seal = Seal,
};

}  // namespace nibble::NIBBLE_ISA_NS
