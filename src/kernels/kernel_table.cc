#include "kernels/kernel_table.h"

#include "kernels/attention_kernels.h"
#include "kernels/float_kernels.h"
#include "kernels/matmul_kernels.h"

namespace nibble {
namespace {

template <Isa kIsa>
const KernelTable& Row() {
  static const KernelTable kRow = {kIsa, &MatmulKernelsFor(kIsa), AttentionKernelsFor(kIsa),
                                   FloatKernelsFor(kIsa)};
  return kRow;
}

}  // namespace

const KernelTable& KernelsFor(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return Row<Isa::kScalar>();
    case Isa::kAvx2:
      return Row<Isa::kAvx2>();
    case Isa::kAvxVnni:
      return Row<Isa::kAvxVnni>();
    case Isa::kAvx512:
      return Row<Isa::kAvx512>();
    case Isa::kAvx512Vnni:
      return Row<Isa::kAvx512Vnni>();
    case Isa::kNeonDot:
      return Row<Isa::kNeonDot>();
  }
  return Row<Isa::kScalar>();
}

}  // namespace nibble
