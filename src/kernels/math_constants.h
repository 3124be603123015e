#pragma once

// Constants of nibble's own float functions, shared by the scalar twin (ref/math.h) and the vector
// form (simd/floats/math.h), which do the same operations in the same order.
namespace nibble::math_constants {

// Adding 1.5 · 2^23 rounds a float below 2^22 to the nearest integer, ties to even, and leaves that
// integer in the low bits.
inline constexpr float kRound = 12582912.0F;

// exp2 on [-0.5, 0.5]: 1 + c1 r + … + c6 r^6, minimax relative error 2.0e-9 before rounding.
inline constexpr float kExp2[6] = {0x1.62e430p-1F, 0x1.ebfbdcp-3F,  0x1.c6aee8p-5F,
                                   0x1.3b2d4ep-7F, 0x1.5f3e6ap-10F, 0x1.41fbaep-13F};
inline constexpr float kExp2Max = 128.0F;   // gives infinity
inline constexpr float kExp2Min = -126.0F;  // below: 0, so no denormal arises

// exp on [-ln2/2, ln2/2]: 1 + r + c2 r^2 + … + c6 r^6, minimax relative error 3.1e-9.
inline constexpr float kExp[5] = {0x1.fffffcp-2F, 0x1.555492p-3F, 0x1.5558f2p-5F, 0x1.1239e2p-7F,
                                  0x1.6a2434p-10F};
inline constexpr float kLog2E = 0x1.715476p+0F;
inline constexpr float kLn2High = 0x1.62e400p-1F;     // 15 significant bits: n · high is exact
inline constexpr float kLn2Low = 0x1.7f7d1cp-20F;     // ln 2 - high
inline constexpr float kExpMax = 88.72283172607422F;  // above: infinity
inline constexpr float kInfinity = __builtin_huge_valf();
inline constexpr float kExpMin = -87.33654022216797F;

// A softmax weight below 2^-64 is zero: a denormal operand costs 250 times a normal one.
inline constexpr float kSoftmaxMin = -64.0F;

// tanh(x) below 0.625: x + x^3 P(x^2) (Cephes, Moshier 1992); above: 1 - 2 / (exp(2x) + 1).
inline constexpr float kTanhSmall = 0.625F;
inline constexpr float kTanh[5] = {-3.33332819422e-1F, 1.33314422036e-1F, -5.37397155531e-2F,
                                   2.06390887954e-2F, -5.70498872745e-3F};

// erf: below 475/512 x + x P(x^2); above erfc(|x|) = exp(x-polynomial) (N. Juffa's coefficients).
inline constexpr float kErfSmall = 0.927734375F;
inline constexpr float kErf[6] = {1.28379166e-1F,  -3.76125336e-1F, 1.12819925e-1F,
                                  -2.67681349e-2F, 4.99119423e-3F,  -5.96761703e-4F};
inline constexpr float kErfc[6] = {-1.28717512e-1F, -6.34846687e-1F, -1.06777877e-1F,
                                   2.42546219e-2F,  -3.88396438e-3F, 3.83197126e-4F};
inline constexpr float kErfcTop = -1.72853470e-5F;
inline constexpr float kSqrtHalf = 0x1.6a09e6p-1F;

// GELU, tanh form: x · sigmoid(x · (a + b x^2)); a = 2 sqrt(2/pi), b = 0.044715 a.
inline constexpr float kGeluA = 1.5957691216057308F;
inline constexpr float kGeluB = 0.071354816272600F;

}  // namespace nibble::math_constants
