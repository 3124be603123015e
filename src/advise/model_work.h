#pragma once

#include <vector>

#include "format/format.h"
#include "kernels/activations.h"
#include "kernels/peaks.h"
#include "model/config/model_file.h"

namespace nibble {

// Multiply-adds by the peak that bounds them (advise/limits.h).
struct Macs {
  double int4 = 0;
  double int8 = 0;
  double f32 = 0;

  double& Of(Peak peak) { return peak == Peak::kInt4 ? int4 : peak == Peak::kInt8 ? int8 : f32; }
  Macs& operator+=(const Macs& other);
  Macs operator*(double factor) const;
};

// Layers whose attention sees equally far.
struct AttentionWork {
  int window = 0;           // most visible positions; 0: all
  double macs_per_key = 0;  // of one query token and one visible position, all these layers
};

// What bounds the products with a cache's pages. A query at position p sees those before
// p / unit_tokens · unit_tokens sealed (kernels/kv_view.h), the others open, which is f32.
struct KvPeaks {
  Peak k = Peak::kF32;
  Peak v = Peak::kF32;
  int unit_tokens = 1;
};

// Multiplications of a model: what one token needs in its matrices, by format, and in attention,
// which grows with the context.
struct ModelWork {
  Macs per_row;        // one token: all layers, of the last one keys, values and queries only
  Macs per_logit_row;  // beside that: the rest of the last layer and the output matrix
  std::vector<AttentionWork> attention;  // but the last layer's
  AttentionWork last_attention;          // computed for rows with logits only

  // Attention of `rows` tokens at positions first, first + 1, …, in the last layer of the last one
  // if its logits are wanted: QKᵀ and PV over the positions that each sees, itself included.
  // Exponentials, norms, gates and rotations are not multiplications of two matrices and are not
  // counted.
  Macs AttentionMacs(int first, int rows, bool logits, const KvPeaks& kv) const;

  // The arithmetic of the matrices: kF32 where no format has integer products, whatever was asked.
  Act act() const;
};
ModelWork ComputeWork(const ModelFile& file, Act act);

}  // namespace nibble
