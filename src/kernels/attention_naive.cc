// The rounding bound. u = 2^-24; A is the row's largest Σ|q k| · scale; n positions in S splits of
// 512; e^x stands for the powers of two that the kernels use.
//
//   score      the folded scale and its product with q: 2 u; a chain of head_dim fused
//              multiply-adds: (head_dim + 2) u A in all. A soft cap's tanh has 3 u of its own, its
//              factor and product 2 more: 5 u cap; its slope is at most 1.
//   weight     s - m is rounded once, and is at most R = min(2 A, 64 ln 2) where the weight is not
//              zero; exp2 has 1.5 units in the last place. m is a float that cancels between
//              numerator and denominator: its own error does not matter. Relative: score + R u + 3
//              u.
//   rescale    a weight is multiplied by exp2(old m - new m) at most once per later page of its
//              split (15), when its split is folded (1) and at each later fold (S - 1): 4 u each,
//              and the rounded differences add up to R u.
//   sums       o: a chain of 512 per split and two operations per fold; l: 16 pages, a tree of 5
//              and two operations per fold.
//   end        1 / l, the sink's exp2, product and sum, the product with o: 10 u.
//   cut        weights below 2^-64 are zero: at most n 2^-64 max|v|.
//
// Weight and rescale errors enter numerator and denominator: twice. All but the cut is relative to
// Σ p|v| / Σ p. Products of these errors: less than a hundredth more while the sum is below 0.005.
#include "kernels/attention_naive.h"

#include <algorithm>
#include <cmath>

#include "base/math.h"
#include "kernels/attention_kernels.h"
#include "kernels/kv_read.h"

namespace nibble {
namespace {

struct Seen {
  std::vector<double> weight;  // scores, then weights
  std::vector<double> v;       // [positions seen][head_dim]
  double size = 0;             // A
  double largest_v = 0;
};

Seen Read(const AttentionShape& s, const KvView& kv, int head, int position, const float* q) {
  const int kv_head = head / (s.heads / s.kv_heads);
  const int begin = s.window > 0 ? std::max(0, position - s.window + 1) : 0;
  Seen seen;
  KvPageValues values;
  for (int t = begin; t <= position; ++t) {
    const int j = t % kPageTokens;
    if (t == begin || j == 0) values = ReadKvPage(kv, t / kPageTokens, kv_head);
    double dot = 0;
    double absolute = 0;
    for (int d = 0; d < s.head_dim; ++d) {
      const auto at = static_cast<size_t>(j * s.head_dim + d);
      const double product = double{q[d]} * values.k[at];
      dot += product;
      absolute += std::fabs(product);
      seen.v.push_back(values.v[at]);
      seen.largest_v = std::max(seen.largest_v, std::fabs(double{values.v[at]}));
    }
    seen.size = std::max(seen.size, absolute * std::fabs(s.scale));
    dot *= s.scale;
    seen.weight.push_back(s.soft_cap != 0 ? s.soft_cap * std::tanh(dot / s.soft_cap) : dot);
  }
  return seen;
}

// In units of 2^-24, relative to Σ p|v| / Σ p.
double RoundingUnits(const AttentionShape& s, double size, int positions) {
  const double splits =
      CeilDiv(positions, kSplitPages * kPageTokens) + 1.0;  // may begin inside one
  const double score = (s.head_dim + 2) * size + 5 * std::fabs(s.soft_cap);
  const double range = std::min(2 * size, 64 * std::log(2.0));
  const double weight = score + range + 3;
  const double rescale = 4 * (15 + splits) + range;
  const double sums = 512 + 2 * splits + 16 + 5 + 2 * splits;
  return 2 * (weight + rescale) + sums + 10;
}

}  // namespace

NaiveAttentionRow NaiveAttention(const AttentionShape& shape, const KvView& kv, int head,
                                 Position position, const float* q) {
  Seen seen = Read(shape, kv, head, position.value(), q);
  double top = *std::ranges::max_element(seen.weight);
  if (shape.sinks != nullptr) top = std::max(top, double{shape.sinks[head]});
  double sum = shape.sinks != nullptr ? std::exp(shape.sinks[head] - top) : 0;
  for (double& x : seen.weight) sum += x = std::exp(x - top);
  const auto dim = static_cast<size_t>(shape.head_dim);
  NaiveAttentionRow row{.out = std::vector<double>(dim), .bound = std::vector<double>(dim)};
  for (size_t t = 0; t < seen.weight.size(); ++t) {
    const double weight = seen.weight[t] / sum;
    for (size_t c = 0; c < dim; ++c) {
      row.out[c] += weight * seen.v[t * dim + c];
      row.bound[c] += weight * std::fabs(seen.v[t * dim + c]);
    }
  }
  const auto positions = static_cast<int>(seen.weight.size());
  const double relative = 1.01 * 0x1p-24 * RoundingUnits(shape, seen.size, positions);
  const double cut = positions * 0x1p-64 * seen.largest_v;
  for (double& bound : row.bound) bound = bound * relative + cut;
  return row;
}

}  // namespace nibble
