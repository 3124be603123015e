#include "quantize/rtn.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "format/legacy_quants.h"
#include "format/small_float.h"
#include "platform/thread_pool.h"
#include "quantize/method_golden_test.h"

namespace nibble {
namespace {

using testing::MethodGolden;

GridSpec SpecOf(const std::string& name) {
  // convention.bits.sym.type
  const size_t a = name.find('.');
  const size_t b = name.find('.', a + 1);
  const size_t c = name.find('.', b + 1);
  const std::string convention = name.substr(0, a);
  const std::string type = name.substr(c + 1);
  GridSpec spec = {.bits = std::stoi(name.substr(a + 1)), .granularity = Granularity::kChannel};
  spec.symmetric = name.substr(b + 1, c - b - 1) == "sym";
  spec.scale_type = type == "f16"    ? ScaleType::kF16
                    : type == "bf16" ? ScaleType::kBf16
                                     : ScaleType::kF32;
  spec.convention = convention == "awq"                  ? GridConvention::kAwq
                    : convention == "smoothquant"        ? GridConvention::kSmoothQuant
                    : convention == "ggml"               ? GridConvention::kGgml
                    : convention == "compressed-tensors" ? GridConvention::kCompressedTensors
                                                         : GridConvention::kGptq;
  spec.search_range = convention == "searched";
  return spec;
}

TEST(Rtn, EveryConventionIsThePublishedOne) {
  const MethodGolden golden("rtn");
  ThreadPool pool(2);
  const auto names = golden.NamesBefore(".codes");
  ASSERT_GE(names.size(), 60u);
  for (const std::string& name : names) {
    const auto found = QuantizeRtn(golden.Matrix("x"), SpecOf(name), pool);
    ASSERT_TRUE(found.has_value()) << name << ": " << found.error().message;
    EXPECT_EQ(found->scales, golden[name + ".scale"]) << name;
    EXPECT_EQ(std::vector<float>(found->zeros.begin(), found->zeros.end()), golden[name + ".zero"])
        << name;
    EXPECT_EQ(std::vector<float>(found->codes.begin(), found->codes.end()), golden[name + ".codes"])
        << name;
  }
}

std::vector<float> Normal(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.05f);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// ggml's convention against the encoder of format/, which ggml's own bytes check.
TEST(Rtn, GgmlGridsAreTheBlockFormats) {
  const auto x = Normal(size_t{8} * 64, 3);
  ThreadPool pool(1);
  for (const int bits : {4, 5, 8}) {
    const GridSpec spec = {.bits = bits, .group = 32, .convention = GridConvention::kGgml};
    const auto found = QuantizeRtn(DenseView(x.data(), 8, 64), spec, pool);
    ASSERT_TRUE(found.has_value());
    std::vector<float> ours(x.size());
    Dequantize(*found, DenseView(ours.data(), 8, 64), pool);
    const FormatTraits& traits = TraitsOf(bits == 4   ? Format::kQ4_0
                                          : bits == 5 ? Format::kQ5_0
                                                      : Format::kQ8_0);
    std::vector<std::byte> bytes(traits.RowBytes(x.size()));
    std::vector<float> theirs(x.size());
    traits.encode(x.data(), bytes.data(), x.size());
    traits.decode(bytes.data(), theirs.data(), x.size());
    EXPECT_EQ(ours, theirs) << bits;
  }
}

TEST(Rtn, GranularitiesShareWhatTheySay) {
  const auto x = Normal(size_t{5} * 100, 4);
  const auto view = DenseView(x.data(), 5, 100);
  ThreadPool pool(2);
  const auto relative_error = [&](const GridSpec& spec) {
    const auto found = QuantizeRtn(view, spec, pool);
    EXPECT_TRUE(found.has_value());
    std::vector<float> values(x.size());
    Dequantize(*found, DenseView(values.data(), 5, 100), pool);
    double error = 0;
    for (size_t i = 0; i < x.size(); ++i) error += std::pow(double{values[i]} - double{x[i]}, 2);
    return error;
  };
  const double tensor = relative_error({.granularity = Granularity::kTensor});
  const double channel = relative_error({.granularity = Granularity::kChannel});
  const double group = relative_error({.group = 32});  // the last group has 4
  EXPECT_LT(channel, tensor);
  EXPECT_LT(group, channel);

  const auto one = QuantizeRtn(view, {.granularity = Granularity::kTensor}, pool);
  ASSERT_TRUE(one.has_value());
  EXPECT_EQ(one->scales, std::vector<float>(5, one->scales[0]));
  const auto groups = QuantizeRtn(view, {.group = 32}, pool);
  EXPECT_EQ(groups->groups(), 4);
}

TEST(Rtn, TheSameBitsForAnyNumberOfThreads) {
  const auto x = Normal(size_t{37} * 96, 5);
  ThreadPool one(1);
  ThreadPool three(3);
  const GridSpec spec = {.bits = 3, .group = 32, .search_range = true};
  const auto a = QuantizeRtn(DenseView(x.data(), 37, 96), spec, one);
  const auto b = QuantizeRtn(DenseView(x.data(), 37, 96), spec, three);
  EXPECT_EQ(a->codes, b->codes);
  EXPECT_EQ(a->scales, b->scales);
}

TEST(Rtn, ScalesTheirTypeCannotHoldStayUsable) {
  ThreadPool pool(1);
  const std::vector<float> tiny = {1e-9f, -1e-9f};
  const auto small = QuantizeRtn(DenseView(tiny.data(), 1, 2), {.bits = 4}, pool);
  ASSERT_TRUE(small.has_value());
  EXPECT_EQ(small->scales[0], 0x1p-24f);
  const std::vector<float> huge = {3e38f, -3e38f};
  for (const ScaleType type : {ScaleType::kF32, ScaleType::kF16, ScaleType::kBf16}) {
    const auto large = QuantizeRtn(DenseView(huge.data(), 1, 2),
                                   {.bits = 4, .symmetric = false, .scale_type = type}, pool);
    ASSERT_TRUE(large.has_value());
    EXPECT_TRUE(std::isfinite(large->scales[0]));
    EXPECT_GT(large->codes[0], large->codes[1]);
  }
}

TEST(Rtn, NamesTheWeightThatIsNoNumber) {
  auto x = Normal(size_t{40} * 64, 6);
  x[33 * 64 + 5] = std::numeric_limits<float>::quiet_NaN();
  x[21 * 64 + 63] = -std::numeric_limits<float>::infinity();
  ThreadPool pool(3);
  const auto found = QuantizeRtn(DenseView(x.data(), 40, 64), {}, pool);
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().message, "row 21 column 63: expected a finite weight, found -inf");
}

TEST(Rtn, RefusesWhatHasNoGrid) {
  const std::vector<float> x(64, 1.0f);
  ThreadPool pool(1);
  const auto error = [&](const GridSpec& spec) {
    const auto found = QuantizeRtn(DenseView(x.data(), 1, 64), spec, pool);
    return found ? std::string() : found.error().message;
  };
  EXPECT_NE(error({.bits = 1}).find("2 to 8"), std::string::npos);
  EXPECT_NE(error({.bits = 9}).find("2 to 8"), std::string::npos);
  EXPECT_NE(error({.group = 0}).find("group"), std::string::npos);
  EXPECT_NE(error({.symmetric = false, .convention = GridConvention::kGgml}).find("symmetric"),
            std::string::npos);
}

TEST(Fp8, RoundsToTheNearestCodeAndSaturates) {
  ThreadPool pool(2);
  auto x = Normal(size_t{6} * 50, 7);
  x[10] = 4.0f;
  const auto view = DenseView(x.data(), 6, 50);
  for (const Granularity granularity : {Granularity::kTensor, Granularity::kChannel}) {
    const auto found = QuantizeFp8(view, granularity, ScaleType::kF16, pool);
    ASSERT_TRUE(found.has_value());
    ASSERT_EQ(found->scales.size(), granularity == Granularity::kTensor ? 1u : 6u);
    std::vector<float> values(x.size());
    Dequantize(*found, DenseView(values.data(), 6, 50));
    for (size_t i = 0; i < x.size(); ++i) {
      const float scale = found->scales[found->scales.size() == 1 ? 0 : i / 50];
      // The nearest of all finite codes, looked for one by one; the largest may clip by the
      // rounding of the scale.
      float least = std::numeric_limits<float>::infinity();
      for (int code = 0; code < 256; ++code) {
        const float value = F8E4M3ToF32(static_cast<uint8_t>(code));
        if (std::isfinite(value)) least = std::min(least, std::fabs(x[i] / scale - value));
      }
      EXPECT_LE(std::fabs(x[i] / scale - values[i] / scale), least * 1.0001f + 1e-6f);
    }
  }
  const std::vector<float> zeros(50, 0.0f);
  const auto none =
      QuantizeFp8(DenseView(zeros.data(), 1, 50), Granularity::kChannel, ScaleType::kF32, pool);
  EXPECT_EQ(none->scales[0], 1.0f);
  EXPECT_FALSE(QuantizeFp8(view, Granularity::kGroup, ScaleType::kF32, pool).has_value());
}

}  // namespace
}  // namespace nibble
