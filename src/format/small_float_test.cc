#include "format/small_float.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "format/fp4.h"
#include "format/iq4.h"

namespace nibble {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Value of a sign-less code of e exponent and m mantissa bits, from the definition.
double Definition(int code, int mantissa_bits, int bias) {
  const int exponent = code >> mantissa_bits;
  const int mantissa = code & ((1 << mantissa_bits) - 1);
  if (exponent == 0) return std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

// Every finite code: decodes by the definition, encodes back, and what lies between two codes goes
// to the nearer, the middle to the even one.
template <class Decode, class Encode>
void CheckAllCodes(int largest, int mantissa_bits, int bias, Decode decode, Encode encode) {
  const int sign = largest < 0x80 ? 0x80 : 0x8000;
  for (int code = 0; code <= largest; ++code) {
    const float value = decode(code);
    ASSERT_EQ(static_cast<double>(value), Definition(code, mantissa_bits, bias)) << code;
    ASSERT_EQ(encode(value), code);
    ASSERT_EQ(decode(code | sign), -value);
    ASSERT_TRUE(std::signbit(decode(code | sign)));
    ASSERT_EQ(encode(-value), code | sign);
    if (code == largest) break;
    const float middle = value / 2.0f + decode(code + 1) / 2.0f;  // exact in float
    ASSERT_EQ(encode(middle), code % 2 == 0 ? code : code + 1) << code;
    ASSERT_EQ(encode(std::nextafter(middle, 0.0f)), code);
    ASSERT_EQ(encode(std::nextafter(middle, kInfinity)), code + 1);
  }
}

TEST(SmallFloat, F16RoundsToNearestEven) {
  CheckAllCodes(
      0x7bff, 10, 15, [](int code) { return F16ToF32(static_cast<uint16_t>(code)); },
      [](float value) { return int{F32ToF16(value)}; });
  CheckAllCodes(
      0x7bff, 10, 15, [](int code) { return F16ToF32(static_cast<uint16_t>(code)); },
      [](float value) { return int{F32ToF16Saturating(value)}; });
}

TEST(SmallFloat, F16BeyondItsRange) {
  EXPECT_EQ(F32ToF16(65519.99f), 0x7bff);
  EXPECT_EQ(F32ToF16(65520.0f), 0x7c00);
  EXPECT_EQ(F32ToF16(-kInfinity), 0xfc00);
  EXPECT_EQ(F32ToF16Saturating(65520.0f), 0x7bff);
  EXPECT_EQ(F32ToF16Saturating(kInfinity), 0x7bff);
  EXPECT_EQ(F32ToF16Saturating(-1e30f), 0xfbff);
  EXPECT_EQ(F16ToF32(0x7c00), kInfinity);
  EXPECT_EQ(F16ToF32(0xfc00), -kInfinity);
  EXPECT_TRUE(std::isnan(F16ToF32(F32ToF16(kNan))));
  EXPECT_TRUE(std::isnan(F16ToF32(F32ToF16Saturating(-kNan))));
  // A NaN whose payload lies in the bits that are cut off must not become an infinity.
  EXPECT_TRUE(std::isnan(F16ToF32(F32ToF16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_EQ(F32ToF16(std::numeric_limits<float>::denorm_min()), 0);
}

TEST(SmallFloat, BF16RoundsToNearestEven) {
  CheckAllCodes(
      0x7f7f, 7, 127, [](int code) { return BF16ToF32(static_cast<uint16_t>(code)); },
      [](float value) { return int{F32ToBF16(value)}; });
  EXPECT_EQ(F32ToBF16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(BF16ToF32(F32ToBF16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(SmallFloat, F8E4M3RoundsToNearestEvenAndSaturates) {
  CheckAllCodes(
      0x7e, 3, 7, [](int code) { return F8E4M3ToF32(static_cast<uint8_t>(code)); },
      [](float value) { return int{F32ToF8E4M3Saturating(value)}; });
  EXPECT_EQ(F8E4M3ToF32(0x7e), 448.0f);
  EXPECT_EQ(F32ToF8E4M3Saturating(1e9f), 0x7e);
  EXPECT_EQ(F32ToF8E4M3Saturating(-kInfinity), 0xfe);
  EXPECT_TRUE(std::isnan(F8E4M3ToF32(0x7f)));
  EXPECT_TRUE(std::isnan(F8E4M3ToF32(0xff)));
  EXPECT_TRUE(std::isnan(F8E4M3ToF32(F32ToF8E4M3Saturating(kNan))));
}

TEST(SmallFloat, F8E5M2RoundsToNearestEvenAndSaturates) {
  CheckAllCodes(
      0x7b, 2, 15, [](int code) { return F8E5M2ToF32(static_cast<uint8_t>(code)); },
      [](float value) { return int{F32ToF8E5M2Saturating(value)}; });
  EXPECT_EQ(F8E5M2ToF32(0x7b), 57344.0f);
  EXPECT_EQ(F32ToF8E5M2Saturating(1e9f), 0x7b);
  EXPECT_EQ(F32ToF8E5M2Saturating(-kInfinity), 0xfb);
  EXPECT_EQ(F8E5M2ToF32(0x7c), kInfinity);
  EXPECT_TRUE(std::isnan(F8E5M2ToF32(F32ToF8E5M2Saturating(kNan))));
}

TEST(SmallFloat, E8M0IsAPowerOfTwo) {
  for (int code = 0; code < 255; ++code) {
    const double value = std::ldexp(1.0, code - 127);
    EXPECT_EQ(static_cast<double>(E8M0ToF32(static_cast<uint8_t>(code))), value);
    EXPECT_EQ(static_cast<double>(E8M0ToF32Half(static_cast<uint8_t>(code))), value / 2.0);
  }
  EXPECT_TRUE(std::isnan(E8M0ToF32(255)));
  EXPECT_EQ(E8M0ToF32Half(255), 0x1p127f);
}

TEST(SmallFloat, UE4M3IsNearlyTheNearest) {
  for (int code = 0; code < 0x7f; ++code) {
    const float value = UE4M3ToF32(static_cast<uint8_t>(code));
    EXPECT_EQ(static_cast<double>(value), Definition(code, 3, 7));
    EXPECT_EQ(F32ToUE4M3(value), value < 256.0f ? code : 0x7e);
  }
  EXPECT_EQ(UE4M3ToF32(0x7f), 0.0f);
  EXPECT_EQ(F32ToUE4M3(kNan), 0);
  EXPECT_EQ(F32ToUE4M3(-1.0f), 0);
  EXPECT_EQ(F32ToUE4M3(1e9f), 0x7e);
  EXPECT_EQ(F32ToUE4M3(256.0f), 0x7e);   // ggml's step from 240 to 448
  EXPECT_EQ(F32ToUE4M3(1.0625f), 0x39);  // the middle of 1 and 1.125 goes up
  EXPECT_EQ(F32ToUE4M3(0.0156f), 0x07);  // no carry out of the subnormals
}

}  // namespace
}  // namespace nibble
