#include "quantize/dense_kernels.h"

#include "platform/cpu.h"
#include "quantize/isa/dense_table.h"

namespace nibble {

const DenseKernels& DenseKernelsHere() {
  static const DenseKernels& kHere = []() -> const DenseKernels& {
    [[maybe_unused]] const Isa isa = ChooseIsa().value_or(Isa::kScalar);
#if defined(__x86_64__)
    if (isa == Isa::kAvx512 || isa == Isa::kAvx512Vnni) return isa_avx512::kDenseKernels;
    if (isa == Isa::kAvx2 || isa == Isa::kAvxVnni) return isa_avx2::kDenseKernels;
#endif
    return isa_base::kDenseKernels;
  }();
  return kHere;
}

}  // namespace nibble
