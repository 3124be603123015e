#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <vector>

#include "format/iq4.h"
#include "format/scale_search_lanes.h"

namespace nibble {
namespace {

// Eight groups of one size: ordinary ones, and those whose searches end early or divide by nothing.
struct EightGroups {
  int size;
  std::vector<float> x;
  std::vector<float> weights;

  EightGroups(int n, unsigned seed) : size(n) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal;
    for (int g = 0; g < kSearchLanes; ++g) {
      const int kind = static_cast<int>((seed + static_cast<unsigned>(g)) % 11);
      for (int i = 0; i < n; ++i) {
        float value = normal(engine) * 0.02F;
        if (kind == 1) value = 0;
        if (kind == 2) value = 0.25F;
        if (kind == 3) value = std::abs(value);
        if (kind == 4) value = i == 5 ? 100.0F : value;
        if (kind == 5) value *= 1e-15F;
        if (kind == 6) value *= 1e20F;
        if (kind == 7) value = static_cast<float>(i % 3) - 1;
        if (kind == 8) value = -0.0F;
        x.push_back(value);
        weights.push_back(kind == 9 ? 0.0F : std::abs(normal(engine)));
      }
    }
  }
  std::span<const float> X(int g) const { return Of(x, g); }
  std::span<const float> W(int g) const { return Of(weights, g); }

 private:
  std::span<const float> Of(const std::vector<float>& all, int g) const {
    return std::span(all).subspan(static_cast<size_t>(g * size), static_cast<size_t>(size));
  }
};

void ExpectSameBits(float a, float b) {
  EXPECT_EQ(std::bit_cast<uint32_t>(a), std::bit_cast<uint32_t>(b)) << a << " " << b;
}

TEST(ScaleSearch, EightSideBySideAreEightAlone) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    const EightGroups groups(seed % 2 == 0 ? 16 : 32, seed);
    const auto codes_size = static_cast<size_t>(groups.size);
    for (const AffineSearch& search :
         {AffineSearch{15, -1.0F, 0.1F, 20, false}, AffineSearch{3, -0.5F, 0.1F, 15, true},
          AffineSearch{31, -0.9F, 0.05F, 36, false}}) {
      std::vector<uint8_t> codes(groups.x.size());
      AffineFit fits[kSearchLanes];
      FitAffine8(groups.x.data(), groups.weights.data(), groups.size, search, codes.data(), fits);
      for (int g = 0; g < kSearchLanes; ++g) {
        std::vector<uint8_t> own(codes_size);
        const AffineFit fit = FitAffine(groups.X(g), groups.W(g), search, own.data());
        ExpectSameBits(fits[g].scale, fit.scale);
        ExpectSameBits(fits[g].min, fit.min);
        EXPECT_TRUE(std::equal(own.begin(), own.end(), codes.begin() + g * groups.size))
            << "group " << g << " of seed " << seed;
      }
    }
    for (const int limit : {4, 8, 32}) {
      std::vector<uint8_t> codes(groups.x.size());
      float scales[kSearchLanes];
      FitSymmetric8(groups.x.data(), groups.weights.data(), groups.size, limit, codes.data(),
                    scales);
      for (int g = 0; g < kSearchLanes; ++g) {
        std::vector<uint8_t> own(codes_size);
        ExpectSameBits(scales[g], FitSymmetric(groups.X(g), groups.W(g), limit, own.data()));
        EXPECT_TRUE(std::equal(own.begin(), own.end(), codes.begin() + g * groups.size))
            << "group " << g << " of seed " << seed;
      }
    }
    if (groups.size != 32) continue;
    float scales[kSearchLanes];
    FitIq4Scales8(groups.x.data(), groups.weights.data(), scales);
    for (int g = 0; g < kSearchLanes; ++g) {
      ExpectSameBits(scales[g], FitIq4Scale(groups.X(g).data(), groups.W(g).data()));
    }
  }
}

}  // namespace
}  // namespace nibble
