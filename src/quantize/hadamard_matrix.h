#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"

namespace nibble {

// A Hadamard matrix of n rows: entries ±1, H Hᵀ = n · 1. [n][n], row-major.
//
// n = K · 2^m: the Kronecker product of one of order K, by Paley's constructions over a field of
// K − 1 (≡ 3 mod 4) or K/2 − 1 (≡ 1 mod 4) elements, with Sylvester's of order 2^m; K is the least
// order that there is. Paley, 1933; between 2 and 1,024 some multiples of 4 are not reached (92,
// 116, 156, 172, …, which need Williamson's tables): of widths of known models none is missing,
// since 11,008 = 344 · 32. Error: an n that has no such K (the number).
struct HadamardFactors {
  int core = 1;                // K
  int doublings = 0;           // m
  std::vector<int8_t> matrix;  // [K][K]
  int size() const { return core << doublings; }
};
Result<HadamardFactors> FindHadamard(int n);

// y = x · H for one vector [n], in place, H the Kronecker product core ⊗ Sylvester.
void MultiplyByHadamard(const HadamardFactors& factors, double* x);

}  // namespace nibble
