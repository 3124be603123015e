#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/math_constants.h"

// The scalar twins of simd/floats/math.h: the definition of nibble's float functions. std::fma is
// exact everywhere; min and max are written as comparisons because libraries differ on NaN.
//
// Error bounds (kernels/elementwise_test.cc measures them over all exponents): Exp2 and Exp 1.5
// units in the last place, Tanh 3, Sigmoid 3; Phi absolute 2^-23.
namespace nibble::ref {

inline float Scale2(float p, float rounded) {
  const uint32_t bits = std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(rounded) << 23);
  return std::bit_cast<float>(bits);
}

// 2^x; 0 below `least` (at least -126), infinity from 128 on; exactly 1 at 0; NaN of NaN.
inline float Exp2(float x, float least = math_constants::kExp2Min) {
  using namespace math_constants;
  const float clamped = kExp2Max < x ? kExp2Max : x;
  const float t = clamped + kRound;
  const float r = clamped - (t - kRound);
  float p = kExp2[5];
  for (int i = 4; i >= 0; --i) p = std::fma(p, r, kExp2[i]);
  p = std::fma(p, r, 1.0F);
  const float y = x < least ? 0.0F : Scale2(p, t);
  return x == x ? y : x;  // the payload of a NaN would have become an exponent
}

// e^x; 0 where the result would be below 2^-126, infinity from 2^128 on; NaN of NaN.
inline float Exp(float x) {
  using namespace math_constants;
  const float t = std::fma(x, kLog2E, kRound);
  const float n = t - kRound;
  float r = std::fma(n, -kLn2High, x);
  r = std::fma(n, -kLn2Low, r);
  float p = kExp[4];
  for (int i = 3; i >= 0; --i) p = std::fma(p, r, kExp[i]);
  p = std::fma(p, r, 1.0F);
  p = std::fma(p, r, 1.0F);
  const float y = x < kExpMin ? 0.0F : Scale2(p, t);
  const float number = kExpMax < x ? kInfinity : y;
  return x == x ? number : x;
}

// 1 / (1 + e^-x).
inline float Sigmoid(float x) { return 1.0F / (1.0F + Exp(-x)); }

inline float Tanh(float x) {
  using namespace math_constants;
  const float a = std::fabs(x);
  const float s = x * x;
  float p = kTanh[4];
  for (int i = 3; i >= 0; --i) p = std::fma(p, s, kTanh[i]);
  const float small = std::fma(p * s, x, x);
  const float large = 1.0F - 2.0F / (Exp(a + a) + 1.0F);
  return a < kTanhSmall ? small : std::copysign(large, x);
}

// The standard normal distribution function Φ(x) = (1 + erf(x / √2)) / 2.
inline float Phi(float x) {
  using namespace math_constants;
  const float z = x * kSqrtHalf;
  const float a = std::fabs(z);
  const float s = z * z;
  float p = kErf[5];
  for (int i = 4; i >= 0; --i) p = std::fma(p, s, kErf[i]);
  const float small = std::fma(std::fma(p, z, z), 0.5F, 0.5F);
  float r = std::fma(kErfcTop, a, kErfc[5]);
  const float u = std::fma(kErfc[4], a, kErfc[3]);
  r = std::fma(r, s, u);
  for (int i = 2; i >= 0; --i) r = std::fma(r, a, kErfc[i]);
  const float tail = 0.5F * Exp(std::fma(r, a, -a));
  const float large = z < 0.0F ? tail : 1.0F - tail;
  return a < kErfSmall ? small : large;
}

}  // namespace nibble::ref
