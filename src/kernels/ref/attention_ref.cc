// The scalar truth of kernels/attention_kernels.h (online softmax: Milakov & Gimelshein 2018;
// tiles: Dao et al. 2022). Order, the same on every instruction set:
//   score:  s_j = fma over channels in order, from 0; then the soft cap; a masked position is -inf
//   page:   if the page's largest score exceeds the row's m, m takes it and l and o are multiplied
//           by exp2(old m - m); then p_j = exp2(s_j - m), zero below 2^-64
//   l:      32 lanes, position j of each page adds to lane j; joined by the tree at the end
//   o:      fma over positions in order
// A page in which a row sees nothing leaves the row's m, l and o as they were.
#include "kernels/ref/attention_ref.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "format/small_float.h"
#include "kernels/kv_view.h"
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

// Positions [begin, end) of the page, clipped to 0 … 32, are visible to the row.
struct Visible {
  int begin;
  int end;
};
Visible VisibleIn(const AttentionTask& task, int row, int page) {
  const int base = task.first_position + page * kPageTokens;
  const int last = task.positions[row] - base;
  const int first = task.window > 0 ? last - task.window + 1 : 0;
  return {first > 0 ? first : 0, last < kPageTokens - 1 ? last + 1 : kPageTokens};
}

template <class K>
Lanes Scores(const AttentionTask& task, int row, const K* k) {
  Lanes s = {};
  for (int d = 0; d < task.head_dim; ++d) {
    const float q = task.q[d * kRowBlock + row];
    for (int j = 0; j < kPageTokens; ++j) {
      s.value[j] = std::fma(Load(k, d * kPageTokens + j), q, s.value[j]);
    }
  }
  if (task.cap_log2e != 0) {
    for (float& value : s.value) value = task.cap_log2e * Tanh(value);
  }
  return s;
}

float Tree(Lanes sum) {
  for (int half = kPageTokens / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) sum.value[i] = sum.value[i] + sum.value[i + half];
  }
  return sum.value[0];
}

void Multiply(float factor, float* x, int n) {
  for (int i = 0; i < n; ++i) x[i] = x[i] * factor;
}

template <class K, class V>
void RunRow(const AttentionTask& task, int row) {
  float* o = task.o + static_cast<ptrdiff_t>(row) * task.o_stride;
  for (int c = 0; c < task.o_stride; ++c) o[c] = 0;
  float m = kNothing;
  Lanes l = {};
  for (int page = 0; page < task.page_count; ++page) {
    const Visible visible = VisibleIn(task, row, page);
    if (visible.begin >= visible.end) continue;
    Lanes s = Scores(task, row, reinterpret_cast<const K*>(task.pages[page]));
    const auto* v = reinterpret_cast<const V*>(task.pages[page] + task.v_offset);
    float top = kNothing;
    for (int j = 0; j < kPageTokens; ++j) {
      if (j < visible.begin || j >= visible.end) s.value[j] = kNothing;
      top = s.value[j] > top ? s.value[j] : top;
    }
    if (top > m) {
      const float shrink = Exp2(m - top, math_constants::kSoftmaxMin);
      Multiply(shrink, l.value, kPageTokens);
      Multiply(shrink, o, task.head_dim);
      m = top;
    }
    for (int j = 0; j < kPageTokens; ++j) {
      const float p = Exp2(s.value[j] - m, math_constants::kSoftmaxMin);
      l.value[j] = l.value[j] + p;
      for (int c = 0; c < task.head_dim; ++c) {
        o[c] = std::fma(Load(v, j * task.head_dim + c), p, o[c]);
      }
    }
  }
  task.m[row] = m;
  task.l[row] = Tree(l);
}

template <class K, class V>
void Run(const AttentionTask& task) {
  for (int row = 0; row < task.rows; ++row) RunRow<K, V>(task, row);
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

}  // namespace

const AttentionKernels kAttentionKernels = {
    .run = {{Run<float, float>, Run<float, uint16_t>},
            {Run<uint16_t, float>, Run<uint16_t, uint16_t>}},
    .combine = Combine,
    .finish = Finish,
    .to_half = ToHalf,
};

}  // namespace nibble::ref
