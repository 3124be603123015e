#include "kernels/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/kernel_test_support.h"

namespace nibble {
namespace {

using testing::FloatTable;
using testing::RandomFloats;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class Sampling : public ::testing::TestWithParam<Isa> {
 protected:
  KernelTable kernels_ = FloatTable(GetParam());
};

std::vector<int32_t> SortedTop(const std::vector<float>& x, int k) {
  std::vector<int32_t> ids(x.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::sort(ids.begin(), ids.end(),
            [&](int a, int b) { return x[a] != x[b] ? x[a] > x[b] : a < b; });
  ids.resize(std::min(ids.size(), static_cast<size_t>(k)));
  return ids;
}

TEST_P(Sampling, ArgMaxTakesTheLowestOfEquals) {
  std::vector<float> x(1000, -3);
  EXPECT_EQ(ArgMaxLogit(kernels_, x), 0);
  x[777] = x[34] = x[999] = 5;
  EXPECT_EQ(ArgMaxLogit(kernels_, x), 34);
  EXPECT_EQ(MaxLogit(kernels_, x), 5);
  x[34] = kNan;
  EXPECT_EQ(ArgMaxLogit(kernels_, x), 777);
  EXPECT_EQ(ArgMaxLogit(kernels_, std::vector<float>(33, -kInf)), 0);
  EXPECT_EQ(ArgMaxLogit(kernels_, std::vector<float>(33, kNan)), 0);
}

TEST_P(Sampling, CollectsInOrder) {
  for (size_t n : {1, 31, 1000, 10007}) {
    const auto x = RandomFloats(n, 3);
    std::vector<int32_t> want = {-1};
    for (size_t i = 0; i < n; ++i) {
      if (x[i] >= 0.5F) want.push_back(static_cast<int32_t>(i));
    }
    std::vector<int32_t> got = {-1};
    CollectAtLeast(kernels_, x, 0.5F, got);
    EXPECT_EQ(got, want);
  }
}

TEST_P(Sampling, TopKEqualsSorting) {
  for (int n : {1, 5, 100, 4099, 50257}) {
    auto x = RandomFloats(static_cast<size_t>(n), static_cast<unsigned>(n));
    for (float& value : x) value = std::round(value * 50) / 50;  // many equal ones
    for (int k : {1, 2, 40, 300, n / 2, n, n + 3}) {
      std::vector<int32_t> got;
      SelectTopK(kernels_, x, k, got);
      ASSERT_EQ(got, SortedTop(x, k)) << n << " " << k;
    }
  }
}

TEST_P(Sampling, TopKOfFewNumbers) {
  std::vector<float> x(100, -kInf);
  x[70] = 1;
  x[20] = kNan;
  std::vector<int32_t> got;
  SelectTopK(kernels_, x, 3, got);
  EXPECT_EQ(got, (std::vector<int32_t>{70, 0, 1}));
  SelectTopK(kernels_, x, 0, got);
  EXPECT_TRUE(got.empty());
}

INSTANTIATE_TEST_SUITE_P(Isas, Sampling, ::testing::ValuesIn(SupportedIsas()),
                         [](const auto& info) { return std::string(IsaName(info.param)); });

}  // namespace
}  // namespace nibble
