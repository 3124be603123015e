#pragma once

#include <span>

#include "kernels/attention.h"

namespace nibble {

// Scales of a layer's fp8 keys and values that a checkpoint brings along (compressed-tensors'
// k_scale, v_scale: its calibration's largest magnitude / 448); 0: each page has its own.
struct KvScales {
  float key = 0;
  float value = 0;
};

// WriteKv (kernels/attention.h) with such scales.
void WriteKv(const KernelTable& kernels, ThreadPool& pool,
             std::span<const AttentionSequence> sequences, MatrixView<const float> k,
             MatrixView<const float> v, const KvScales& scales);

}  // namespace nibble
