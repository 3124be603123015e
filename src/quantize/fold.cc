#include "quantize/fold.h"

#include "base/check.h"

namespace nibble {

void ScaleColumns(MatrixView<float> w, std::span<const float> s) {
  NIBBLE_CHECK(s.size() == static_cast<size_t>(w.cols));
  for (int r = 0; r < w.rows; ++r) {
    float* row = w.row(r);
    for (size_t c = 0; c < s.size(); ++c) row[c] *= s[c];
  }
}

void DivideRows(MatrixView<float> w, std::span<float> bias, std::span<const float> s) {
  NIBBLE_CHECK(s.size() == static_cast<size_t>(w.rows));
  NIBBLE_CHECK(bias.empty() || bias.size() == s.size());
  for (int r = 0; r < w.rows; ++r) {
    for (float& value : w.row_span(r)) value /= s[static_cast<size_t>(r)];
  }
  for (size_t r = 0; r < bias.size(); ++r) bias[r] /= s[r];
}

void DivideNorm(std::span<float> weight, std::span<float> bias, std::span<const float> s,
                bool plus_one) {
  NIBBLE_CHECK(s.size() == weight.size() && (bias.empty() || bias.size() == s.size()));
  for (size_t c = 0; c < s.size(); ++c) {
    weight[c] = plus_one ? (1 + weight[c]) / s[c] - 1 : weight[c] / s[c];
  }
  for (size_t c = 0; c < bias.size(); ++c) bias[c] /= s[c];
}

namespace {

// Calls fn(first of a group, value's index) for every channel of every value head.
template <class Fn>
void ForEachValue(const HeadGroups& groups, size_t size, Fn fn) {
  NIBBLE_CHECK(groups.kv_heads > 0 && groups.heads % groups.kv_heads == 0);
  const auto dim = static_cast<size_t>(groups.head_dim);
  const auto each = static_cast<size_t>(groups.heads / groups.kv_heads);
  NIBBLE_CHECK(size == static_cast<size_t>(groups.heads) * dim);
  for (size_t head = 0; head < static_cast<size_t>(groups.kv_heads); ++head) {
    for (size_t d = 0; d < dim; ++d) fn(head * each * dim + d, head * dim + d);
  }
}

}  // namespace

void TieHeads(std::span<float> statistics, const HeadGroups& groups) {
  const auto dim = static_cast<size_t>(groups.head_dim);
  const int each = groups.heads / groups.kv_heads;
  ForEachValue(groups, statistics.size(), [&](size_t first, size_t) {
    double sum = 0;
    for (int i = 0; i < each; ++i) sum += double{statistics[first + static_cast<size_t>(i) * dim]};
    for (int i = 0; i < each; ++i) {
      statistics[first + static_cast<size_t>(i) * dim] = static_cast<float>(sum / each);
    }
  });
}

Result<std::vector<float>> ScalesOfValues(std::span<const float> s, const HeadGroups& groups) {
  const auto dim = static_cast<size_t>(groups.head_dim);
  const int each = groups.heads / groups.kv_heads;
  std::vector<float> values(static_cast<size_t>(groups.kv_heads) * dim);
  bool agree = true;
  ForEachValue(groups, s.size(), [&](size_t first, size_t value) {
    values[value] = s[first];
    for (int i = 1; i < each; ++i)
      agree = agree && s[first + static_cast<size_t>(i) * dim] == s[first];
  });
  if (!agree) {
    return BadInput("grouped queries: scales of {} query heads that share a value head differ",
                    each);
  }
  return values;
}

}  // namespace nibble
