#pragma once

#include "kernels/attention_kernels.h"

namespace nibble::ref {

const AttentionKernels& ScalarAttentionKernels();

// Adds the kernels of sealed pages.
void AddSealedKernels(AttentionKernels& kernels);

}  // namespace nibble::ref
