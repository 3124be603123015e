#pragma once

#include "kernels/attention_kernels.h"

namespace nibble::ref {

extern const AttentionKernels kAttentionKernels;

}  // namespace nibble::ref
