// The scalar truth of kernels/attention_kernels.h (online softmax: Milakov & Gimelshein 2018;
// tiles: Dao et al. 2022). Order, the same on every instruction set:
//   score:  s_j = fma over channels in order, from 0; then the soft cap; a masked position is -inf
//   page:   if the page's largest score exceeds the row's m, m takes it and l and o are multiplied
//           by exp2(old m - m); then p_j = exp2(s_j - m), zero below 2^-64
//   l:      32 lanes, position j of each page adds to lane j; joined by the tree at the end
//   o:      fma over positions in order
// A page in which a row sees nothing leaves the row's m, l and o as they were.
// Pages whose products with values are integer (attention_sealed_ref.cc) take p_j = exp2(s_j -
// top), top the page's largest score, and beta = exp2(top - m) after m has been raised (1 where it
// was): l_j = fma(p_j, beta, l_j). A weight of few bits relative to the running maximum would lose
// every page after one with a large score.
#include "kernels/ref/attention_ref.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "format/small_float.h"
#include "kernels/kv_view.h"
#include "kernels/quantise_query.h"
#include "kernels/ref/math.h"

namespace nibble::ref {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

float Load(const float* x, int i) { return x[i]; }
float Load(const uint16_t* x, int i) { return F16ToF32(x[i]); }

struct Lanes {
  float value[kPageTokens];
};

// Of the rows of a block: the denominators, and the factors of the page at hand.
struct RowState {
  Lanes l[kRowBlock] = {};
  float shrink[kRowBlock] = {};
  float beta[kRowBlock] = {};
  bool relative = false;
};

template <class K>
void Scores(const AttentionTask& task, const PageForm& /*form*/, int page, int count, float* s) {
  for (int i = 0; i < count; ++i) {
    const auto* k = reinterpret_cast<const K*>(task.pages[page + i]);
    for (int row = 0; row < task.rows; ++row) {
      float* to = s + (i * kRowBlock + row) * kPageTokens;
      for (int j = 0; j < kPageTokens; ++j) to[j] = 0;
      for (int d = 0; d < task.head_dim; ++d) {
        const float q = task.q[d * kRowBlock + row];
        for (int j = 0; j < kPageTokens; ++j) {
          to[j] = std::fma(Load(k, d * kPageTokens + j), q, to[j]);
        }
      }
    }
  }
}

template <class V>
void Values(const AttentionTask& task, const PageForm& form, int page, const PageWeights& weights) {
  const auto* v = reinterpret_cast<const V*>(task.pages[page] + form.v_offset);
  for (int row = 0; row < task.rows; ++row) {
    float* o = task.o + static_cast<ptrdiff_t>(row) * task.o_stride;
    for (int c = 0; c < task.head_dim; ++c) o[c] = o[c] * weights.shrink[row];
    for (int j = 0; j < kPageTokens; ++j) {
      const float p = weights.p[row * kPageTokens + j];
      for (int c = 0; c < task.head_dim; ++c) {
        o[c] = std::fma(Load(v, j * task.head_dim + c), p, o[c]);
      }
    }
  }
}

float Tree(Lanes sum) {
  for (int half = kPageTokens / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) sum.value[i] = sum.value[i] + sum.value[i + half];
  }
  return sum.value[0];
}

// A row's scores of one page become weights. Sets the row's factors (PageWeights).
void Softmax(const AttentionTask& task, int row, PageSpan visible, RowState& state, float* p) {
  state.shrink[row] = 1;
  state.beta[row] = state.relative ? 0.0F : 1.0F;
  if (visible.begin >= visible.end) {
    for (int j = 0; j < kPageTokens; ++j) p[j] = 0;
    return;
  }
  float top = kNothing;
  for (int j = 0; j < kPageTokens; ++j) {
    if (task.cap_log2e != 0) p[j] = task.cap_log2e * Tanh(p[j]);
    if (j < visible.begin || j >= visible.end) p[j] = kNothing;
    top = p[j] > top ? p[j] : top;
  }
  if (state.relative) state.beta[row] = Exp2(top - task.m[row], math_constants::kSoftmaxMin);
  if (top > task.m[row]) {
    state.shrink[row] = Exp2(task.m[row] - top, math_constants::kSoftmaxMin);
    state.beta[row] = 1;
    task.m[row] = top;
  }
  const float shift = state.relative ? top : task.m[row];
  for (int j = 0; j < kPageTokens; ++j) {
    float& l = state.l[row].value[j];
    p[j] = Exp2(p[j] - shift, math_constants::kSoftmaxMin);
    l = l * state.shrink[row];
    l = state.relative ? std::fma(p[j], state.beta[row], l) : l + p[j];
  }
}

void Run(const AttentionTask& task) {
  float p[kRowBlock][kPageTokens];
  RowState state;
  for (int row = 0; row < task.rows; ++row) {
    float* o = task.o + static_cast<ptrdiff_t>(row) * task.o_stride;
    for (int c = 0; c < task.o_stride; ++c) o[c] = 0;
    task.m[row] = kNothing;
  }
  for (int page = 0; page < task.page_count; ++page) {
    const PageForm& form = page < task.sealed_pages ? task.sealed : task.open;
    form.score(task, form, page, 1, p[0]);
    state.relative = form.page_relative;
    for (int row = 0; row < task.rows; ++row) {
      Softmax(task, row, VisibleIn(task, row, page), state, p[row]);
    }
    form.value(task, form, page, {p[0], {0, kPageTokens}, state.shrink, state.beta});
  }
  for (int row = 0; row < task.rows; ++row) task.l[row] = Tree(state.l[row]);
}

void Gather(const float* const* rows, float scale, int head_dim, float* q) {
  for (int d = 0; d < head_dim; ++d) {
    for (int r = 0; r < kRowBlock; ++r) q[d * kRowBlock + r] = rows[r][d] * scale;
  }
}

void QuantiseQuery(const float* q, int head_dim, const IntQueryBuffer& to) {
  QuantiseQueryRows(q, head_dim, to);
}

void Combine(const float* x, float b, float a, int n, float* acc) {
  for (int i = 0; i < n; ++i) acc[i] = std::fma(x[i], b, acc[i] * a);
}

void Finish(const float* x, float inverse, int n, float* out) {
  for (int i = 0; i < n; ++i) {
    const float value = x[i] * inverse + 0.0F;
    out[i] = value == value ? value : kNan;
  }
}

void ToHalf(const float* x, int n, uint16_t* to) {
  for (int i = 0; i < n; ++i) to[i] = std::isnan(x[i]) ? 0 : F32ToF16Saturating(x[i]);
}

AttentionKernels MakeKernels() {
  AttentionKernels kernels = {
      .run = Run,
      .score = {Scores<float>, Scores<uint16_t>},
      .value = {Values<float>, Values<uint16_t>},
      .int_score = {},
      .int_value = {},
      .unpack = {},
      .gather = Gather,
      .quantise_query = QuantiseQuery,
      .combine = Combine,
      .finish = Finish,
      .to_half = ToHalf,
      .seal = SealScalar,
  };
  AddSealedKernels(kernels);
  return kernels;
}

}  // namespace

const AttentionKernels& ScalarAttentionKernels() {
  static const AttentionKernels kKernels = MakeKernels();
  return kKernels;
}

}  // namespace nibble::ref
