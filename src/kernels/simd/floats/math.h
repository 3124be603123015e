#pragma once

// The vector form of ref/math.h: the same operations in the same order, so the same bits.
#include "kernels/math_constants.h"
#include "kernels/simd/floats/reg.h"

namespace nibble::NIBBLE_ISA_NS {
namespace {

// 2^x; 0 below `least`, infinity from 128 on, NaN of NaN.
NIBBLE_INLINE Reg Exp2(Reg x, float least) {
  namespace mc = math_constants;
  const Reg clamped = Min(Set(mc::kExp2Max), x);
  const Reg t = Add(clamped, Set(mc::kRound));
  const Reg r = Sub(clamped, Sub(t, Set(mc::kRound)));
  Reg p = Set(mc::kExp2[5]);
  NIBBLE_UNROLL for (int i = 4; i >= 0; --i) p = Fma(p, r, Set(mc::kExp2[i]));
  p = Fma(p, r, Set(1.0F));
  const Reg y = Select(Less(x, Set(least)), Set(0.0F), Scale2(p, t));
  return Select(Equal(x, x), y, x);
}

// Exp2 of an x that is at most 0 or NaN: the same bits in fewer steps.
NIBBLE_INLINE Reg Exp2OfMinus(Reg x, float least) {
  namespace mc = math_constants;
  const Reg t = Add(x, Set(mc::kRound));
  const Reg n = Sub(t, Set(mc::kRound));
  const Reg r = Sub(x, n);
  Reg p = Set(mc::kExp2[5]);
  NIBBLE_UNROLL for (int i = 4; i >= 0; --i) p = Fma(p, r, Set(mc::kExp2[i]));
  p = Fma(p, r, Set(1.0F));
#if defined(__AVX512F__)
  // vscalefps keeps a NaN, and so does the comparison.
  return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, Set(least), _CMP_NLT_UQ), p, n);
#else
  // Multiplied by 2^n, which is exact: a NaN stays one.
  return KeepNotLess(x, Set(least), Mul(p, PowerOf2(t)));
#endif
}

NIBBLE_INLINE Reg Exp(Reg x) {
  namespace mc = math_constants;
  const Reg t = Fma(x, Set(mc::kLog2E), Set(mc::kRound));
  const Reg n = Sub(t, Set(mc::kRound));
  Reg r = Fma(n, Set(-mc::kLn2High), x);
  r = Fma(n, Set(-mc::kLn2Low), r);
  Reg p = Set(mc::kExp[4]);
  NIBBLE_UNROLL for (int i = 3; i >= 0; --i) p = Fma(p, r, Set(mc::kExp[i]));
  p = Fma(p, r, Set(1.0F));
  p = Fma(p, r, Set(1.0F));
  const Reg y = Select(Less(x, Set(mc::kExpMin)), Set(0.0F), Scale2(p, t));
  const Reg number = Select(Less(Set(mc::kExpMax), x), Set(mc::kInfinity), y);
  return Select(Equal(x, x), number, x);
}

NIBBLE_INLINE Reg Sigmoid(Reg x) {
  const Reg one = Set(1.0F);
  return Div(one, Add(one, Exp(Negate(x))));
}

NIBBLE_INLINE Reg Tanh(Reg x) {
  namespace mc = math_constants;
  const Reg one = Set(1.0F);
  const Reg a = Abs(x);
  const Reg s = Mul(x, x);
  Reg p = Set(mc::kTanh[4]);
  NIBBLE_UNROLL for (int i = 3; i >= 0; --i) p = Fma(p, s, Set(mc::kTanh[i]));
  const Reg small = Fma(Mul(p, s), x, x);
  const Reg large = Sub(one, Div(Set(2.0F), Add(Exp(Add(a, a)), one)));
  return Select(Less(a, Set(mc::kTanhSmall)), small, CopySign(large, x));
}

NIBBLE_INLINE Reg Phi(Reg x) {
  namespace mc = math_constants;
  const Reg half = Set(0.5F);
  const Reg z = Mul(x, Set(mc::kSqrtHalf));
  const Reg a = Abs(z);
  const Reg s = Mul(z, z);
  Reg p = Set(mc::kErf[5]);
  NIBBLE_UNROLL for (int i = 4; i >= 0; --i) p = Fma(p, s, Set(mc::kErf[i]));
  const Reg small = Fma(Fma(p, z, z), half, half);
  Reg r = Fma(Set(mc::kErfcTop), a, Set(mc::kErfc[5]));
  const Reg u = Fma(Set(mc::kErfc[4]), a, Set(mc::kErfc[3]));
  r = Fma(r, s, u);
  NIBBLE_UNROLL for (int i = 2; i >= 0; --i) r = Fma(r, a, Set(mc::kErfc[i]));
  const Reg tail = Mul(half, Exp(Fma(r, a, Negate(a))));
  const Reg large = Select(Less(z, Set(0.0F)), tail, Sub(Set(1.0F), tail));
  return Select(Less(a, Set(mc::kErfSmall)), small, large);
}

}  // namespace
}  // namespace nibble::NIBBLE_ISA_NS
