#pragma once

#include <cstdint>

#include "platform/cpu.h"

namespace nibble {

// One head-sized rotation of a row: cos and sin [pairs], x [heads][head_dim].
struct RopeRow {
  const float* cos;
  const float* sin;
  int pairs;
  int heads;
  int head_dim;
};

// Row kernels over n contiguous floats, one set per instruction set. The order of operations is
// written in ref/float_ref.cc; every set gives its bits. y may alias an input of the same length.
struct FloatKernels {
  void (*rms_norm)(const float* x, const float* weight, float eps, int n, float* y);
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps, int n,
                     float* y);
  void (*gate[3])(const float* a, const float* b, int n, float* y);  // by enum Gate; b may be null
  void (*add)(const float* x, int n, float* y);                      // y += x
  void (*scale)(float factor, int n, float* x);
  void (*soft_cap)(float cap, int n, float* x);
  void (*rope_halves)(const RopeRow& row, float* x);       // pairs (i, i + pairs)
  void (*rope_interleaved)(const RopeRow& row, float* x);  // pairs (2i, 2i + 1)

  float (*max)(const float* x, int n);                         // -infinity for none; NaN is skipped
  double (*sum_exp)(const float* x, float offset, int64_t n);  // sum of exp(x - offset)
  // Sum of exp(p - offset) · ((p - q) - gap), the bracket within ±1e30: what a divergence needs.
  double (*sum_exp_gap)(const float* p, const float* q, float offset, float gap, int64_t n);
  // Indices base + i of the elements >= threshold, ascending, at most capacity; returns how many.
  int (*collect)(const float* x, int n, float threshold, int32_t base, int32_t* ids, int capacity);
};

const FloatKernels* FloatKernelsFor(Isa isa);

}  // namespace nibble
