#pragma once

#include "kernels/float_kernels.h"

namespace nibble::ref {

extern const FloatKernels kFloatKernels;

}  // namespace nibble::ref
