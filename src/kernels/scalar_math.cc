#include "kernels/scalar_math.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace nibble {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kRound = 0x1.8p52;  // adding it rounds to the nearest integer
constexpr double kLog2E = 0x1.71547652b82fep+0;
// ln 2 in two parts, the first with 32 significant bits: exponent · high is exact.
constexpr double kLn2High = 0x1.62e42feep-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
// π/2 in three parts of 53 bits.
constexpr double kHalfPi1 = 0x1.921fb54442d18p+0;
constexpr double kHalfPi2 = 0x1.1a62633145c07p-54;
constexpr double kHalfPi3 = -0x1.f1976b7ed8fbcp-110;

template <int N>
double Horner(const double (&c)[N], double x) {
  double p = c[N - 1];
  for (int i = N - 2; i >= 0; --i) p = std::fma(p, x, c[i]);
  return p;
}

// 1/2! … 1/14!
constexpr double kExpTaylor[] = {
    1.0 / 2,         1.0 / 6,          1.0 / 24,           1.0 / 120,     1.0 / 720,
    1.0 / 5040,      1.0 / 40320,      1.0 / 362880,       1.0 / 3628800, 1.0 / 39916800,
    1.0 / 479001600, 1.0 / 6227020800, 1.0 / 87178291200.0};
// Taylor of sin(x)/x - 1 and cos(x) - 1 in x², on |x| <= π/4 below 2^-58.
constexpr double kSin[] = {
    -1.0 / 6,        1.0 / 120,        -1.0 / 5040,          1.0 / 362880,
    -1.0 / 39916800, 1.0 / 6227020800, -1.0 / 1307674368000, 1.0 / 355687428096000};
constexpr double kCos[] = {
    -1.0 / 2,       1.0 / 24,        -1.0 / 720,         1.0 / 40320,
    -1.0 / 3628800, 1.0 / 479001600, -1.0 / 87178291200, 1.0 / 20922789888000};
// 2/3, 2/5, …: log((1+s)/(1-s)) = 2s + s³ (2/3 + 2/5 s² + …).
constexpr double kLog[] = {2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9,  2.0 / 11, 2.0 / 13,
                           2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21, 2.0 / 23};

struct Pair {
  double high;
  double low;
};

// ln x as an unevaluated sum with a relative error near 2^-60; x positive and finite.
Pair LogPair(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);  // [0.5, 1)
  if (m < 0x1.6a09e667f3bcdp-1) {
    m = m + m;
    --exponent;
  }
  const double f = m - 1.0;
  const double g = m + 1.0;
  const double g_low = m - (g - 1.0);  // g + g_low = m + 1
  const double s = f / g;
  const double s_low = (std::fma(-s, g, f) - s * g_low) / g;
  const double s2 = s * s;
  const double tail = std::fma(s * s2, Horner(kLog, s2), s_low + s_low);
  const double e = exponent;
  const double big = e * kLn2High;  // exact
  const double sum = big + (s + s);
  const double rest =
      (std::fabs(big) > std::fabs(s + s)) ? (big - sum) + (s + s) : ((s + s) - sum) + big;
  const double low = rest + std::fma(e, kLn2Low, tail);
  const double high = sum + low;
  return {high, (sum - high) + low};
}

struct Reduced {
  double r;     // |r| <= π/4
  int quarter;  // multiple of π/2 taken away, mod 4
};
Reduced ReduceAngle(double x) {
  const double n = (x * (2.0 / 3.14159265358979323846) + kRound) - kRound;
  // The first step is exact: x and n · kHalfPi1 are multiples of 2^-53 and their difference is
  // below 1. What the second rounds away is below 2^-53 of the remainder.
  double r = std::fma(-n, kHalfPi1, x);
  r = std::fma(-n, kHalfPi2, r);
  r = std::fma(-n, kHalfPi3, r);
  return {r, static_cast<int>(static_cast<int64_t>(n) & 3)};
}

double SinOf(double r) {
  const double s = r * r;
  return std::fma(r * s, Horner(kSin, s), r);
}

double CosOf(double r) {
  const double s = r * r;
  return std::fma(s, Horner(kCos, s), 1.0);
}

}  // namespace

double Exp(double x) {
  if (std::isnan(x)) return x;
  if (x > 709.782712893384) return kInf;
  if (x < -708.3964185322641) return 0;  // below the least normal
  const double n = (x * kLog2E + kRound) - kRound;
  double r = std::fma(-n, kLn2High, x);
  r = std::fma(-n, kLn2Low, r);
  const double p = std::fma(r * r, Horner(kExpTaylor, r), r) + 1.0;
  return std::ldexp(p, static_cast<int>(n));
}

double Log(double x) {
  if (std::isnan(x) || x == kInf) return x;
  if (x <= 0) return x == 0 ? -kInf : std::numeric_limits<double>::quiet_NaN();
  return LogPair(x).high;
}

double Sin(double x) {
  if (!(std::fabs(x) < 0x1p30)) return std::numeric_limits<double>::quiet_NaN();
  const Reduced a = ReduceAngle(x);
  const double y = (a.quarter & 1) != 0 ? CosOf(a.r) : SinOf(a.r);
  return (a.quarter & 2) != 0 ? -y : y;
}

double Cos(double x) {
  if (!(std::fabs(x) < 0x1p30)) return std::numeric_limits<double>::quiet_NaN();
  const Reduced a = ReduceAngle(x);
  const double y = (a.quarter & 1) != 0 ? SinOf(a.r) : CosOf(a.r);
  return ((a.quarter + 1) & 2) != 0 ? -y : y;
}

double Pow(double x, double y) {
  if (y == 0 || x == 1) return 1;
  if (!(x > 0) || x == kInf) return x == 0 ? (y > 0 ? 0 : kInf) : (x == kInf && y < 0 ? 0 : x);
  const Pair log = LogPair(x);
  const double p = y * log.high;
  if (!(std::fabs(p) < 1000)) return p > 0 ? kInf : 0;
  const double p_low = std::fma(y, log.high, -p) + y * log.low;
  const double power = Exp(p);
  return std::fma(power, p_low, power);
}

double Tanh(double x) {
  const double a = std::fabs(x);
  if (a > 20) return std::copysign(1.0, x);
  const double r = a + a;
  double e = 0;  // exp(2a) - 1, without cancellation near 0
  if (r < 0.4) {
    e = std::fma(r * r, Horner(kExpTaylor, r), r);
  } else {
    e = Exp(r) - 1.0;
  }
  return std::copysign(e / (e + 2.0), x);
}

}  // namespace nibble
