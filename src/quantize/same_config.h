#pragma once

#include "base/result.h"
#include "model/config.h"

namespace nibble {

// Whether two configurations describe the same function of the same weights, but for rounding of
// their numbers to 32 bits, for how Q and K are ordered and for where the 1 of Gemma's norms is.
// Error: the first difference ("head_dim: 64 and 96").
Status CheckSameConfig(const ModelConfig& a, const ModelConfig& b);

}  // namespace nibble
