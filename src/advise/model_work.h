#pragma once

#include "format/format.h"
#include "kernels/activations.h"
#include "model/config/model_file.h"

namespace nibble {

// Multiply-adds by the peak that bounds them (advise/limits.h).
struct Macs {
  double int4 = 0;
  double int8 = 0;
  double f32 = 0;

  Macs& operator+=(const Macs& other);
  Macs operator*(double factor) const;
};

// Matrix multiplications of a model: what one token needs, by format. Attention is apart, since it
// grows with the context.
struct ModelWork {
  Macs per_row;                            // all layers, one token
  Macs per_logit_row;                      // the output matrix
  double attention_macs_per_position = 0;  // f32, one query token, global layers
};
ModelWork ComputeWork(const ModelFile& file, Act act);

}  // namespace nibble
