#include "format/scale_search_lanes.h"

#include "base/check.h"
#include "format/iq4.h"
#include "format/isa/search_table.h"
#include "platform/cpu.h"

namespace nibble {
namespace {

// One after the other.
void Affine(const float* x, const float* weights, int size, const AffineSearch& search,
            uint8_t* codes, AffineFit* fits) {
  const auto n = static_cast<size_t>(size);
  for (size_t g = 0; g < kSearchLanes; ++g) {
    fits[g] = FitAffine({x + g * n, n}, {weights + g * n, n}, search, codes + g * n);
  }
}

void Symmetric(const float* x, const float* weights, int size, int limit, uint8_t* codes,
               float* scales) {
  const auto n = static_cast<size_t>(size);
  for (size_t g = 0; g < kSearchLanes; ++g) {
    scales[g] = FitSymmetric({x + g * n, n}, {weights + g * n, n}, limit, codes + g * n);
  }
}

void Iq4(const float* x, const float* weights, const int8_t* /*values*/, float* scales) {
  for (size_t g = 0; g < kSearchLanes; ++g) {
    scales[g] = FitIq4Scale(x + g * kMaxGroup, weights + g * kMaxGroup);
  }
}

const ScaleSearches& Here() {
  static const ScaleSearches kHere = []() -> ScaleSearches {
#if defined(__x86_64__)
    // Every set but the scalar one has AVX2. Four lanes of SSE2, which has no blends, lost a
    // quarter against scalar code.
    if (ChooseIsa().value_or(Isa::kScalar) != Isa::kScalar) return isa_avx2::kScaleSearches;
#endif
    return {Affine, Symmetric, Iq4};
  }();
  return kHere;
}

}  // namespace

void FitAffine8(const float* x, const float* weights, int size, const AffineSearch& search,
                uint8_t* codes, AffineFit* fits) {
  NIBBLE_CHECK(size > 0 && size <= kMaxGroup);
  Here().affine(x, weights, size, search, codes, fits);
}

void FitSymmetric8(const float* x, const float* weights, int size, int limit, uint8_t* codes,
                   float* scales) {
  NIBBLE_CHECK(size > 0 && size <= kMaxGroup);
  Here().symmetric(x, weights, size, limit, codes, scales);
}

void FitIq4Scales8(const float* x, const float* weights, float* scales) {
  Here().iq4(x, weights, kIq4Values, scales);
}

}  // namespace nibble
