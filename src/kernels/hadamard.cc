// Sums and one product per element: the same bits however the compiler vectorises it.
#include "kernels/hadamard.h"

#include <cmath>

#include "base/check.h"

namespace nibble {
namespace {

void RotateBlock(float* x, int n, float factor) {
  for (int half = 1; half < n; half *= 2) {
    for (int i = 0; i < n; i += 2 * half) {
      for (int j = i; j < i + half; ++j) {
        const float a = x[j];
        const float b = x[j + half];
        x[j] = a + b;
        x[j + half] = a - b;
      }
    }
  }
  for (int i = 0; i < n; ++i) x[i] *= factor;
}

}  // namespace

int HadamardBlock(int head_dim) { return head_dim & -head_dim; }

void HadamardRotate(int head_dim, std::span<float> x) {
  NIBBLE_CHECK(head_dim > 0 && x.size() % static_cast<size_t>(head_dim) == 0);
  const int block = HadamardBlock(head_dim);
  const float factor = 1 / std::sqrt(static_cast<float>(block));
  for (float* at = x.data(); at < x.data() + x.size(); at += block) RotateBlock(at, block, factor);
}

}  // namespace nibble
