#pragma once

#include <vector>

#include "kernels/kv_view.h"

namespace nibble {

// Keys and values of one head in one page, [position in page][head_dim] each.
struct KvPageValues {
  std::vector<float> k;
  std::vector<float> v;
};

// What a piece of a page holds for one KV head.
KvPageValues ReadKvPiece(const std::byte* piece, const KvLayout& layout, int kv_head);

// What a query at `position` sees of a page: for tests and error measurements.
KvPageValues ReadKvPage(const KvView& kv, int page, int kv_head, Position position);

}  // namespace nibble
