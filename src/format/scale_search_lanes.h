#pragma once

#include <cstdint>

#include "format/scale_search.h"

namespace nibble {

// The searches of scale_search.h for eight groups side by side, one a lane: each operation is done
// for all of them in the order that a single group has, so that the results are equal bit by bit
// (and the encoders' bytes still ggml's). What bounds a single group is one sum that waits for
// itself. x, weights: [8][size], groups one after the other; size at most 32; codes: [8][size].
inline constexpr int kSearchLanes = 8;

void FitAffine8(const float* x, const float* weights, int size, const AffineSearch& search,
                uint8_t* codes, AffineFit* fits);
void FitSymmetric8(const float* x, const float* weights, int size, int limit, uint8_t* codes,
                   float* scales);
// The scales of IQ4's groups of 32 (format/iq4.cc).
void FitIq4Scales8(const float* x, const float* weights, float* scales);

}  // namespace nibble
