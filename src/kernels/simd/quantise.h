#pragma once

#include "kernels/quantise_row.h"
#include "kernels/simd/lanes.h"

namespace nibble::NIBBLE_ISA_NS {
namespace {

// The vector side of kernels/quantise_row.h. A NaN's magnitude has the largest bits, so the largest
// magnitude is found among integers.
inline int32_t LargestBits(const float* x, int n) {
  I32x16 max = ZeroI();
  const I32x16 magnitude = SplatI(0x7fffffff);
  for (int i = 0; i < n; i += 16) max = MaxI(max, AndI(AsBits(LoadF(x + i)), magnitude));
  return LargestOf(max);
}

inline void GroupCodesOf(const float* x, int n, GroupScale group, ptrdiff_t stride, int8_t* codes,
                         int32_t* sums) {
  const F32x16 inverse = SplatF(group.inverse);
  const bool finite = group.scale == group.scale;
  for (int i = 0; i < n; i += 16) {
    const F32x16 value = finite ? LoadF(x + i) : ZeroF();
    const F32x16 rounded = Add(Mul(value, inverse), SplatF(kRoundMagic));
    const I32x16 code = SubI(AsBits(rounded), SplatI(kRoundMagicBits));
    sums[i / 16] = PutCodes(code, stride, codes + i / 4 * stride);
  }
}

}  // namespace
}  // namespace nibble::NIBBLE_ISA_NS
