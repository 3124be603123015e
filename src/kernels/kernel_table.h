#pragma once

#include "platform/cpu.h"

namespace nibble {

struct MatmulKernels;     // kernels/matmul_kernels.h
struct AttentionKernels;  // kernels/attention_kernels.h
struct FloatKernels;      // kernels/float_kernels.h

// One row per instruction set; every row gives the same bits (docs/architecture.md, idea 3). The
// contracts in matmul.h, attention.h, elementwise.h … take a row and dispatch once per call.
struct KernelTable {
  Isa isa;
  const MatmulKernels* matmul;
  const AttentionKernels* attention;
  const FloatKernels* floats;
};

// The row of an instruction set that was compiled in; the caller has checked that it runs here.
const KernelTable& KernelsFor(Isa isa);

}  // namespace nibble
