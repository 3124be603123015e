#include "kernels/hadamard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/kernel_test_support.h"

namespace nibble {
namespace {

using testing::Bits;
using testing::RandomFloats;

double Dot(const float* a, const float* b, int n) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += double{a[i]} * b[i];
  return sum;
}

TEST(Hadamard, BlocksAreTheLargestPowerOfTwo) {
  EXPECT_EQ(HadamardBlock(64), 64);
  EXPECT_EQ(HadamardBlock(80), 16);
  EXPECT_EQ(HadamardBlock(24), 8);
  EXPECT_EQ(HadamardBlock(7), 1);
}

TEST(Hadamard, IsTheMatrixOfSigns) {
  for (const int dim : {8, 24, 64, 80}) {
    const int block = HadamardBlock(dim);
    const auto before = RandomFloats(static_cast<size_t>(dim), 3);
    auto x = before;
    HadamardRotate(dim, x);
    for (int i = 0; i < dim; ++i) {
      double want = 0;
      double size = 0;
      for (int j = 0; j < block; ++j) {
        const float value = before[static_cast<size_t>(i / block * block + j)];
        want += std::popcount(static_cast<unsigned>(i % block & j)) % 2 == 0 ? value : -value;
        size += std::fabs(value);
      }
      // log2(block) sums and a product, each half a unit of what was summed.
      const double root = std::sqrt(static_cast<double>(block));
      ASSERT_NEAR(x[static_cast<size_t>(i)], want / root,
                  (std::log2(block) + 2) * 0x1p-24 * size / root)
          << dim << " " << i;
    }
  }
}

TEST(Hadamard, KeepsProductsAndSpreadsOutliers) {
  constexpr int kRows = 40;
  for (const int dim : {24, 64, 128}) {
    const int cols = 3 * dim;
    auto q = RandomFloats(static_cast<size_t>(kRows * cols), 1);
    auto k = RandomFloats(q.size(), 2);
    for (int row = 0; row < kRows; ++row) k[static_cast<size_t>(row * cols + 5)] = 30;
    const auto q0 = q;
    const auto k0 = k;
    HadamardRotate(dim, q);
    HadamardRotate(dim, k);
    for (int at = 0; at < kRows * cols; at += dim) {
      const double size = std::sqrt(Dot(&q0[at], &q0[at], dim) * Dot(&k0[at], &k0[at], dim));
      ASSERT_NEAR(Dot(&q[at], &k[at], dim), Dot(&q0[at], &k0[at], dim), 16 * 0x1p-24 * size);
    }
    EXPECT_LT(std::fabs(*std::max_element(k.begin(), k.begin() + dim)), 30 * 0.7);
    // Heads do not depend on each other.
    auto alone = std::vector<float>(q0.begin() + 7 * cols, q0.begin() + 8 * cols);
    HadamardRotate(dim, alone);
    EXPECT_EQ(Bits(alone),
              Bits(std::span(q).subspan(static_cast<size_t>(7 * cols), static_cast<size_t>(cols))));
  }
}

}  // namespace
}  // namespace nibble
