#include "kernels/simd/matmul_f32.h"
#include "kernels/simd/matmul_parts.h"
#include "kernels/simd/quantise.h"

namespace nibble::NIBBLE_ISA_NS {
namespace {

template <int... kFormats>
struct FormatList {};
using AllFormatIds = FormatList<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18>;

template <int... kFormats>
void SetAll(MatmulKernels& kernels, FormatList<kFormats...>) {
  static_assert(sizeof...(kFormats) + kGroupedFormats == kFormatCount);
  ((kernels.f32[kFormats] = F32Panels<static_cast<Format>(kFormats)>), ...);
}

}  // namespace

void AddFloatKernels(MatmulKernels& kernels) { SetAll(kernels, AllFormatIds{}); }

void AddQuantiser(MatmulKernels& kernels) {
  kernels.quantise = QuantiseRow<LargestBits, GroupCodesOf>;
}

}  // namespace nibble::NIBBLE_ISA_NS
