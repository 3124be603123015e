#pragma once

#include <vector>

#include "kernels/attention.h"

namespace nibble {

// One row and head of attention as the formula says, in double and without tiles, over the values
// that the pages hold; and how far Attention's result may be from it.
struct NaiveAttentionRow {
  std::vector<double> out;    // [head_dim]
  std::vector<double> bound;  // [head_dim]
};

// q: [head_dim], the query of `head` at `position`.
NaiveAttentionRow NaiveAttention(const AttentionShape& shape, const KvView& kv, int head,
                                 Position position, const float* q);

}  // namespace nibble
