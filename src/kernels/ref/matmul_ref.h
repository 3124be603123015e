#pragma once

#include "kernels/matmul_kernels.h"

namespace nibble {

// The scalar twin: portable, plain, and the definition of the float order that every vector kernel
// equals bit for bit.
const MatmulKernels& ScalarMatmulKernels();

}  // namespace nibble
