#pragma once

#include "kernels/activations.h"
#include "kernels/matmul_kernels.h"

namespace nibble {

// The inside of an ActivationBlock for the matmul drivers.
struct ActivationAccess {
  // Rows that Prepare quantised with groups of 32 or 256.
  static QuantisedRows Rows(const ActivationBlock& block, int group);
};

}  // namespace nibble
