#pragma once

#include <vector>

#include "kernels/kv_view.h"

namespace nibble {

// Keys and values of one head in one page, [position in page][head_dim] each.
struct KvPageValues {
  std::vector<float> k;
  std::vector<float> v;
};

// Reads what a page holds, for tests and error measurements.
KvPageValues ReadKvPage(const KvView& kv, int page, int kv_head);

}  // namespace nibble
