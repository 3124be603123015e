#pragma once

#include <span>

namespace nibble {

// Largest power of two that divides head_dim: the size of the rotation's blocks.
int HadamardBlock(int head_dim);

// Rotates every block of HadamardBlock(head_dim) channels of x [heads · head_dim] by the normalised
// Walsh-Hadamard matrix, in place. Applied to queries and keys (after RoPE) it leaves
// their products as they are and spreads a channel's outliers over its block, which is what few
// bits per key need (QuaRot, Ashkboos et al. 2024, arXiv 2404.00456; measured for KV caches in
// ik_llama.cpp PR 1034). It is its own inverse.
//
// Order: WalshHadamard, then the factor 1 / sqrt(block).
void HadamardRotate(int head_dim, std::span<float> x);

// Each block (a power of two that divides n) of x [n] times the Walsh-Hadamard matrix of ±1:
// butterflies of distance 1, 2, 4, … (a + b, a - b).
template <class T>
void WalshHadamard(int block, T* x, int n) {
  for (int half = 1; half < block; half *= 2) {
    for (int i = 0; i < n; i += 2 * half) {
      for (int j = i; j < i + half; ++j) {
        const T a = x[j];
        const T b = x[j + half];
        x[j] = a + b;
        x[j + half] = a - b;
      }
    }
  }
}

}  // namespace nibble
