#pragma once

#include <cstdint>

#include "kernels/matmul_kernels.h"
#include "kernels/simd/lanes.h"

// Prefetching packed weights, which are one stream.
namespace nibble::NIBBLE_ISA_NS {
namespace {

// Near into the first level, far into the second: one distance alone reached 0.82 of the read
// bandwidth on Intel.
constexpr int kPrefetchNear = 8 << 10;
constexpr int kPrefetchFar = 40 << 10;
// Of the sparse form, into the second level.
constexpr int kPrefetchOnly = 8 << 10;

// Asks for what is to be read some time after the kBytes from `at` on.
template <int kBytes>
NIBBLE_INLINE void FetchAhead(const uint8_t* at, Prefetch prefetch) {
  switch (prefetch) {
    case Prefetch::kNone:
      break;
    case Prefetch::kTwice:
      NIBBLE_UNROLL for (int i = 0; i < kBytes; i += 64) {
        __builtin_prefetch(at + kPrefetchNear + i, 0, 3);
        __builtin_prefetch(at + kPrefetchFar + i, 0, 2);
      }
      break;
    case Prefetch::kSparse:
      NIBBLE_UNROLL for (int i = 0; i < kBytes; i += 256) {
        __builtin_prefetch(at + kPrefetchOnly + i, 0, 2);
      }
  }
}

}  // namespace
}  // namespace nibble::NIBBLE_ISA_NS
