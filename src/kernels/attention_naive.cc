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
//   integer    products over sealed pages of an integer format, act=int8. Queries: a code is off by
//              max|q| / 254, a score by D = scale · max|q| / 254 · Σ|k|, the output by (e^2D - 1)
//              Σ p|v| / Σ p. Weights: p_j f_j / F is rounded to a 127th, so that in each page, with
//              P its largest weight, Σ_j P / 254 · F / f_j · |v_j|; F / f_j is the ratio of the
//              largest magnitudes in page and token (1 where one factor covers the page).
//
// Weight and rescale errors enter numerator and denominator: twice. All but the cut is relative to
// Σ p|v| / Σ p. Products of these errors: less than a hundredth more while the sum is below 0.005.
#include "kernels/attention_naive.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/math.h"
#include "kernels/attention_kernels.h"
#include "kernels/kv_read.h"

namespace nibble {
namespace {

struct Seen {
  int begin = 0;               // first position
  std::vector<double> weight;  // scores, then weights
  std::vector<double> v;       // [positions seen][head_dim]
  double size = 0;             // A
  double largest_v = 0;
  double integer_score = 0;          // D
  std::vector<double> weight_units;  // [positions seen] F / f_j · 1 / 254; 0: float products
};

bool IsInteger(const AttentionShape& s, const KvView& kv, int position, int page, KvFormat format) {
  return s.act == Act::kInt8 && page < kv.SealedPages(position) && TraitsOf(format).integer;
}

double LargestOf(std::span<const float> x) {
  double most = 0;
  for (const float value : x) most = std::max(most, std::fabs(double{value}));
  return most;
}

// F / f_j / 254 of a page's tokens.
std::vector<double> WeightUnits(KvFormat format, std::span<const float> v, int head_dim) {
  std::vector<double> units(kPageTokens, 1 / 254.0);
  if (TraitsOf(format).unit_pages > 1) return units;
  const auto dim = static_cast<size_t>(head_dim);
  const double page = LargestOf(v);
  for (size_t j = 0; j < units.size(); ++j) {
    const double token = LargestOf(v.subspan(j * dim, dim));
    units[j] *= token > 0 ? 1.001 * page / token : 0;  // f_j is an f16
  }
  return units;
}

Seen Read(const AttentionShape& s, const KvView& kv, int head, int position, const float* q) {
  const int kv_head = head / (s.heads / s.kv_heads);
  const int begin = s.window > 0 ? std::max(0, position - s.window + 1) : 0;
  Seen seen;
  seen.begin = begin;
  KvPageValues values;
  std::vector<double> units;
  const double query = LargestOf({q, static_cast<size_t>(s.head_dim)});
  for (int t = begin; t <= position; ++t) {
    const int j = t % kPageTokens;
    const int page = t / kPageTokens;
    if (t == begin || j == 0) {
      values = ReadKvPage(kv, page, kv_head, Position{position});
      units.assign(kPageTokens, 0);
      if (IsInteger(s, kv, position, page, kv.sealed.v)) {
        units = WeightUnits(kv.sealed.v, values.v, s.head_dim);
      }
    }
    seen.weight_units.push_back(units[static_cast<size_t>(j)]);
    double dot = 0;
    double absolute = 0;
    double keys = 0;
    for (int d = 0; d < s.head_dim; ++d) {
      const auto at = static_cast<size_t>(j * s.head_dim + d);
      const double product = double{q[d]} * values.k[at];
      dot += product;
      absolute += std::fabs(product);
      keys += std::fabs(double{values.k[at]});
      seen.v.push_back(values.v[at]);
      seen.largest_v = std::max(seen.largest_v, std::fabs(double{values.v[at]}));
    }
    if (IsInteger(s, kv, position, page, kv.sealed.k)) {
      seen.integer_score =
          std::max(seen.integer_score, std::fabs(s.scale) * query / 254 * 1.001 * keys);
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

// Adds what integer products may add to the bound; row.bound holds Σ p|v| / Σ p.
void AddIntegerError(const Seen& seen, double sum, NaiveAttentionRow& row,
                     std::vector<double>& extra) {
  const size_t dim = row.bound.size();
  const double by_scores = std::expm1(2 * seen.integer_score);
  for (size_t c = 0; c < dim; ++c) extra[c] += by_scores * row.bound[c];
  const auto page_of = [&](size_t t) {
    return (static_cast<size_t>(seen.begin) + t) / kPageTokens;
  };
  double largest = 0;  // weight of the page
  for (size_t t = 0; t < seen.weight.size(); ++t) {
    if (t == 0 || page_of(t) != page_of(t - 1)) {
      largest = 0;
      for (size_t u = t; u < seen.weight.size() && page_of(u) == page_of(t); ++u) {
        largest = std::max(largest, seen.weight[u] / sum);
      }
    }
    // The computed weights may be larger by e^2D.
    const double unit = seen.weight_units[t] * largest * (1 + by_scores);
    for (size_t c = 0; c < dim; ++c) extra[c] += unit * std::fabs(seen.v[t * dim + c]);
  }
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
  std::vector<double> extra(dim, cut);
  AddIntegerError(seen, sum, row, extra);
  for (size_t c = 0; c < dim; ++c) row.bound[c] = row.bound[c] * relative + extra[c];
  return row;
}

}  // namespace nibble
