#pragma once

#include <vector>

#include "model/config.h"

namespace nibble {

// What a rotary embedding turns pair i by at position p: angle p · inv_freq[i]; cos and sin are
// multiplied by `factor`.
struct RopeFrequencies {
  std::vector<float> inv_freq;  // [dims / 2]
  float factor = 1;
};

// Frequencies under the model's scaling, in double and with nibble's own functions (the same bits
// on every machine):
//   linear    Chen et al. 2023, arXiv 2306.15595
//   llama3    Llama 3.1's interpolation by wavelength
//   yarn      Peng et al. 2023, arXiv 2309.00071, with transformers' attention factor
//   longrope  Ding et al. 2024, arXiv 2402.13753
// LongRoPE has two sets of factors. transformers switches between them when a sequence grows past
// the original context, which changes the keys that are cached already; here, as in llama.cpp, the
// longest sequence that the user allows decides once: long factors iff max_context is larger than
// the original context. So bits depend neither on chunks nor on batch-mates.
RopeFrequencies ComputeRopeFrequencies(const RopeConfig& rope, int max_context);

}  // namespace nibble
