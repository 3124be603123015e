// Sums and one product per element: the same bits however the compiler vectorises it.
#include "kernels/hadamard.h"

#include <cmath>

#include "base/check.h"

namespace nibble {

int HadamardBlock(int head_dim) { return head_dim & -head_dim; }

void HadamardRotate(int head_dim, std::span<float> x) {
  NIBBLE_CHECK(head_dim > 0 && x.size() % static_cast<size_t>(head_dim) == 0);
  const int block = HadamardBlock(head_dim);
  const float factor = 1 / std::sqrt(static_cast<float>(block));
  for (float* at = x.data(); at < x.data() + x.size(); at += block) {
    WalshHadamard(block, at, block);
    for (int i = 0; i < block; ++i) at[i] *= factor;
  }
}

}  // namespace nibble
