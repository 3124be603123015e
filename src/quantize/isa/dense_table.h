#pragma once

#include "quantize/dense_kernels.h"

namespace nibble {

namespace isa_base {
extern const DenseKernels kDenseKernels;
}
namespace isa_avx2 {
extern const DenseKernels kDenseKernels;
}
namespace isa_avx512 {
extern const DenseKernels kDenseKernels;
}

}  // namespace nibble
