#include "format/kv_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "format/kv_test_support.h"
#include "format/small_float.h"

namespace nibble {
namespace {

using testing::SpreadOf;

constexpr int kDims[] = {24, 40, 64, 80, 128, 256};

struct Page {
  std::vector<std::byte> block;
  float page_float = -1;
};

Page Encode(KvFormat format, KvSide side, const std::vector<float>& x, int dim) {
  Page page{.block = std::vector<std::byte>(KvBlockBytes(format, side, dim), std::byte{0xff})};
  EncodeKv(format, side, x.data(), dim, page.block.data(), &page.page_float);
  return page;
}

std::vector<float> Decode(KvFormat format, KvSide side, const Page& page, int dim) {
  std::vector<float> x(static_cast<size_t>(kPageTokens * dim));
  DecodeKv(format, side, page.block.data(), page.page_float, dim, x.data());
  return x;
}

// f16 numbers, a few channels larger than the others.
std::vector<float> Data(int dim, unsigned seed, float magnitude) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, magnitude);
  std::vector<float> x(static_cast<size_t>(kPageTokens * dim));
  for (size_t i = 0; i < x.size(); ++i) {
    const bool outlier = static_cast<int>(i) % dim % 11 == 3;
    x[i] = F16ToF32(F32ToF16Saturating(normal(engine) * (outlier ? 8.0F : 1.0F) + 0.3F));
  }
  return x;
}

TEST(KvCodec, ErrorsStayWithinTheNamedBound) {
  unsigned seed = 0;
  for (const KvFormatTraits& traits : AllKvFormats()) {
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      for (const int dim : kDims) {
        for (const float magnitude : {1.0F, 1e-6F, 4000.0F}) {
          const std::vector<float> x = Data(dim, ++seed, magnitude);
          const std::vector<float> got =
              Decode(traits.format, side, Encode(traits.format, side, x, dim), dim);
          for (int i = 0; i < kPageTokens * dim; i += 7) {
            const KvSpread spread = SpreadOf(traits.format, side, x, dim, i / dim, i % dim);
            const auto at = static_cast<size_t>(i);
            ASSERT_LE(std::fabs(double{got[at]} - x[at]), KvErrorBound(traits.format, spread))
                << traits.name << " side " << static_cast<int>(side) << " dim " << dim << " at "
                << i << " of " << magnitude;
          }
        }
      }
    }
  }
}

// The bound is no idle promise: coarse formats come close to it.
TEST(KvCodec, BoundsAreTight) {
  for (const KvFormat format :
       {KvFormat::kFp8, KvFormat::kInt8, KvFormat::kInt4, KvFormat::kKivi4, KvFormat::kKivi2}) {
    double worst = 0;
    const std::vector<float> x = Data(64, 5, 1);
    const auto got = Decode(format, KvSide::kKeys, Encode(format, KvSide::kKeys, x, 64), 64);
    for (int i = 0; i < kPageTokens * 64; ++i) {
      const KvSpread spread = SpreadOf(format, KvSide::kKeys, x, 64, i / 64, i % 64);
      const auto at = static_cast<size_t>(i);
      worst = std::max(worst, std::fabs(double{got[at]} - x[at]) / KvErrorBound(format, spread));
    }
    EXPECT_GT(worst, 0.6) << TraitsOf(format).name;
  }
}

TEST(KvCodec, ConstantAndZeroPagesAreKept) {
  for (const KvFormatTraits& traits : AllKvFormats()) {
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      for (const float value : {0.0F, 2.0F, -3.0F}) {
        const std::vector<float> x(kPageTokens * 40, value);
        for (const float got :
             Decode(traits.format, side, Encode(traits.format, side, x, 40), 40)) {
          ASSERT_NEAR(got, value, std::fabs(value) * 0x1p-9) << traits.name;
        }
      }
    }
  }
}

TEST(KvCodec, LargestHalvesDoNotOverflow) {
  std::vector<float> x = Data(64, 9, 1);
  for (size_t i = 0; i < x.size(); i += 5) x[i] = i % 2 == 0 ? 65504.0F : -65504.0F;
  for (const KvFormatTraits& traits : AllKvFormats()) {
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      for (const float got : Decode(traits.format, side, Encode(traits.format, side, x, 64), 64)) {
        ASSERT_LE(std::fabs(got), 65504.0F * 1.002F) << traits.name;
      }
    }
  }
}

// A token's NaN reaches all that share its scale, and with one scale per token nothing else.
TEST(KvCodec, NanPoisonsWhatItsScaleCovers) {
  std::vector<float> x = Data(64, 3, 1);
  const auto clean = x;
  x[5 * 64] = std::numeric_limits<float>::quiet_NaN();
  for (const KvFormatTraits& traits : AllKvFormats()) {
    const auto got =
        Decode(traits.format, KvSide::kKeys, Encode(traits.format, KvSide::kKeys, x, 64), 64);
    EXPECT_TRUE(std::isnan(got[5 * 64])) << traits.name;
    if (traits.page_float[0]) continue;
    const auto want =
        Decode(traits.format, KvSide::kKeys, Encode(traits.format, KvSide::kKeys, clean, 64), 64);
    for (size_t i = 0; i < got.size(); ++i) {
      if (i / 64 == 5) continue;
      ASSERT_EQ(got[i], want[i]) << traits.name;
    }
  }
}

TEST(KvFormat, NamesAreFoundAndUnknownOnesAreNot) {
  for (const KvFormatTraits& traits : AllKvFormats()) {
    EXPECT_EQ(KvFormatFromName(traits.name), traits.format);
  }
  EXPECT_FALSE(KvFormatFromName("q8_0"));
}

}  // namespace
}  // namespace nibble
