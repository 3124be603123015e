#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "format/kv_codec.h"

namespace nibble::testing {

// What numbers share number (j, c)'s scale.
inline KvSpread SpreadOf(KvFormat format, KvSide side, const std::vector<float>& x, int dim, int j,
                         int c) {
  const bool kivi = format == KvFormat::kKivi4 || format == KvFormat::kKivi2;
  KvSpread spread{.low = 1e9, .high = -1e9};
  for (int jj = 0; jj < kPageTokens; ++jj) {
    for (int cc = 0; cc < dim; ++cc) {
      const double value = x[static_cast<size_t>(jj * dim + cc)];
      spread.largest = std::max(spread.largest, std::fabs(value));
      const bool shares = format == KvFormat::kFp8 ? jj == j && cc == c
                          : !kivi                  ? jj == j
                          : side == KvSide::kKeys  ? cc == c
                                                   : jj == j && cc / 32 == c / 32;
      if (!shares) continue;
      spread.low = std::min(spread.low, value);
      spread.high = std::max(spread.high, value);
    }
  }
  return spread;
}

}  // namespace nibble::testing
