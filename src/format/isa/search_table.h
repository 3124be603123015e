#pragma once

#include "format/scale_search_lanes.h"

namespace nibble {

// The functions of format/scale_search_lanes.h on one instruction set.
struct ScaleSearches {
  void (*affine)(const float* x, const float* weights, int size, const AffineSearch& search,
                 uint8_t* codes, AffineFit* fits);
  void (*symmetric)(const float* x, const float* weights, int size, int limit, uint8_t* codes,
                    float* scales);
  void (*iq4)(const float* x, const float* weights, const int8_t values[16], float* scales);
};

namespace isa_avx2 {
extern const ScaleSearches kScaleSearches;
}

}  // namespace nibble
