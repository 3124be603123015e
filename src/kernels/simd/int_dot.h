#pragma once

#include <cstdint>

#include "kernels/panel_layout.h"
#include "kernels/simd/lanes.h"

// Integer dot product of one scale group (16 or 32 depths) of 16 rows with one token: exact, so the
// same number on every instruction set.
//
// The weight operand is unsigned with an offset z = 2^kLog2Zero (kernels/panel_layout.h), or, for
// kLog2Zero = kRowZero, one z ≤ 255 per row; the correction −z · Σa is the accumulator's first
// value. Activations are within ±127.
//
// With byte multiply-adds only (vpmaddubsw: pairs of u8 × i8, saturating at ±32,767), sums of
// `kSteps16` steps stay in 16 bits before they are widened. A step adds one pair product of at most
// 2 · u · 127 to a lane:
//   u ≤ 15: 8 steps, 30,480.   u ≤ 31: 4 steps, 31,496.   u ≤ 63: 2 steps, 32,004.
//   u ≤ 255 would saturate in one (64,770), so such codes go signed, less 128: |w| ≤ 128 times the
//   activation with w's sign, 32,512, one step. What is left to correct is z − 128.
//
// Taking w's sign (vpsignb) needs the ports of the multiplies. So AVX2 over unpacked panels
// (kFlipped) turns the activation's bits over instead, which any port does: where w < 0, ¬a = −a −
// 1 stands for −a, and the sum begins with the excess Σ |w| over the w < 0, which no token changes.
// A pair is at least 2 · 128 · −128 = −32,768 and at most 2 · 127 · 127: 16 bits hold both.
namespace nibble::NIBBLE_ISA_NS {
namespace {

constexpr int kRowZero = -2;

// What the dot multiplies: the unsigned code or, where codes go signed, code − 128. The scratch of
// unpacked panels holds it too, so that a tile of tokens does not move bytes again.
template <int kMaxCode>
NIBBLE_INLINE U8x64 DotOperand(U8x64 code) {
#if defined(NIBBLE_DOT_VNNI)
  return code;
#else
  if constexpr (kMaxCode > 127) return FlipTopBit(code);
  return code;
#endif
}

// kMaxCode: the largest unsigned operand, one of 15, 31, 63, 255.
template <int kMaxCode, int kLog2Zero, bool kUnpacked = false>
struct GroupDot {
  static constexpr bool kBytes = kMaxCode > 127;
#if defined(NIBBLE_DOT_FLIPPED)
  static constexpr bool kFlipped = kBytes && kUnpacked;
#else
  static constexpr bool kFlipped = false;
#endif
#if defined(NIBBLE_DOT_VNNI)
  static constexpr bool kCorrect = kLog2Zero >= 0;
#else
  static constexpr bool kCorrect = kLog2Zero >= 0 && !kBytes;
#endif
  static constexpr int kSteps16 = kMaxCode <= 15 ? 8 : kMaxCode <= 31 ? 4 : kMaxCode <= 63 ? 2 : 1;

  I32x16 sum;
  I32x16 part;  // 16-bit sums

#if defined(NIBBLE_DOT_VNNI)
  static constexpr int kSignedOffset = 0;
#else
  static constexpr int kSignedOffset = kBytes ? 128 : 0;
#endif

  // kRowZero: from the zeros of the rows. |Σa| ≤ 32 · 127 fits 16 bits, so one instruction
  // multiplies, and the sum's upper half meets a zero.
  NIBBLE_INLINE GroupDot StartRows(I32x16 zeros, int32_t neg_sum) {
    if constexpr (kSignedOffset != 0) {
      zeros = AndI(SubI(zeros, SplatI(kSignedOffset)), SplatI(0xffff));
    }
    GroupDot dot;
    dot.sum = MaddPairs(ZeroI(), zeros, SplatI(neg_sum));
    return dot;
  }

  NIBBLE_INLINE GroupDot Start(int32_t neg_sum) {
    GroupDot dot;
    dot.sum = kCorrect ? ShiftLeftI(SplatI(neg_sum), kCorrect ? kLog2Zero : 0) : ZeroI();
    return dot;
  }

  // Step i of n; w: a DotOperand; a: four activation bytes.
  __attribute__((always_inline)) void Step(int i, int n, U8x64 w, int32_t a) {
#if defined(NIBBLE_DOT_VNNI)
    (void)i;
    (void)n;
    sum = DotU8I8(sum, w, a);
#elif defined(NIBBLE_DOT_SIGNED)
    (void)i;
    (void)n;
    sum = DotI8I8(sum, w, a);
#else
    if constexpr (kFlipped) {
#if defined(NIBBLE_DOT_FLIPPED)
      sum = AddI(sum, WidenPairs(MaddFlipped(w, a)));
      Pin(sum);
#endif
    } else if constexpr (kBytes) {
      sum = AddI(sum, WidenPairs(MaddI8I8(w, a)));
      Pin(sum);
    } else {
      const I32x16 product = MaddU8I8(w, a);
      part = i % kSteps16 == 0 ? product : Add16(part, product);
      Pin(part);
      if (i % kSteps16 == kSteps16 - 1 || i == n - 1) {
        sum = AddI(sum, WidenPairs(part));
        Pin(sum);
      }
    }
#endif
  }
};

}  // namespace
}  // namespace nibble::NIBBLE_ISA_NS
