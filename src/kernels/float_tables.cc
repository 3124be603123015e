#include "kernels/attention_kernels.h"
#include "kernels/float_kernels.h"
#include "kernels/ref/attention_ref.h"
#include "kernels/ref/float_ref.h"

namespace nibble {

const FloatKernels* FloatKernelsFor(Isa isa) {
  switch (isa) {
    default:
      return &ref::kFloatKernels;
  }
}

const AttentionKernels* AttentionKernelsFor(Isa isa) {
  switch (isa) {
    default:
      return &ref::kAttentionKernels;
  }
}

}  // namespace nibble
