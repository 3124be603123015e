// The vector form of sealing: the arithmetic of format/kv_codec.cc, operation by operation, on open
// blocks as they lie. Both sides are numbers x[reduced][lanes] in their open blocks: keys
// [channel][token], values [token][channel].
#include "kernels/seal_block.h"

#include <cstddef>
#include <cstdint>

#include "base/paging.h"
#include "kernels/simd/floats/reg.h"

namespace nibble::NIBBLE_ISA_NS {
namespace {

using Ints = int32_t __attribute__((vector_size(sizeof(Reg))));
using Words = uint32_t __attribute__((vector_size(sizeof(Reg))));

constexpr int kMostDim = 512;          // larger heads take the scalar form
constexpr float kRound = 12582912.0F;  // rounds to an integer, ties to even, when added

NIBBLE_INLINE Reg Rounded(Reg x) { return Sub(Add(x, Set(kRound)), Set(kRound)); }
// Of an integer.
NIBBLE_INLINE Ints ToInt(Reg x) { return __builtin_convertvector(x, Ints); }
NIBBLE_INLINE Words BitsOf(Reg x) { return __builtin_bit_cast(Words, x); }
NIBBLE_INLINE Reg FloatOf(Words x) { return __builtin_bit_cast(Reg, x); }
NIBBLE_INLINE Reg Clamp(Reg x, float low, float high) { return Max(Set(low), Min(x, Set(high))); }

// The numbers of an open block as floats.
struct Numbers {
  const float* x;
  int reduced;
  int lanes;
  NIBBLE_INLINE Reg At(const Numbers& of, int r, int lane) {
    return Load(of.x + static_cast<ptrdiff_t>(r) * of.lanes + lane);
  }
};

// False: there is a NaN. `most` is the largest magnitude.
NIBBLE_INLINE bool ToFloats(const SealBlock& block, int n, float* to, float& most) {
  Reg largest = Set(0.0F);
  Words nan = {};
  const auto put = [&](int i, Reg x) {
    Store(to + i, x);
    largest = Max(Abs(x), largest);
    nan |= (BitsOf(x) & 0x7fffffffU) > 0x7f800000U;
  };
  if (block.open == KvFormat::kF16) {
    const auto* from = reinterpret_cast<const uint16_t*>(block.from);
    for (int i = 0; i < n; i += kWidth) put(i, Load(from + i));
  } else {
    const auto* from = reinterpret_cast<const float*>(block.from);
    for (int i = 0; i < n; i += kWidth) put(i, Load(from + i));
  }
  most = TreeMax(largest);
  uint32_t any = 0;
  for (int i = 0; i < kWidth; ++i) any |= nan[i];
  return any == 0;
}

// Codes, kPack quads of the reduction in each word. code(r, lane): of kWidth lanes, masked.
template <int kPack, class Code>
NIBBLE_INLINE void PutCodes(const Numbers& x, Code code, std::byte* to) {
  constexpr int kBits = 8 / kPack;
  for (int i = 0; i < x.reduced / 4 / kPack; ++i) {
    for (int lane = 0; lane < x.lanes; lane += kWidth) {
      Words word = {};
      NIBBLE_UNROLL for (int s = 0; s < kPack; ++s) {
        NIBBLE_UNROLL for (int e = 0; e < 4; ++e) {
          const Ints one = code((i * kPack + s) * 4 + e, lane);
          word |= __builtin_bit_cast(Words, one) << (8 * e + kBits * s);
        }
      }
      __builtin_memcpy(to + (static_cast<ptrdiff_t>(i) * x.lanes + lane) * 4, &word, sizeof word);
    }
  }
}

// int8, int4: scales of tokens, which are lanes of keys and rows of values.
template <int kPack>
NIBBLE_INLINE void SealPerToken(const SealBlock& block, const Numbers& x) {
  constexpr float kLimit = kPack == 1 ? 127 : 7;
  constexpr int kMask = kPack == 1 ? 255 : 15;
  const bool keys = block.side == KvSide::kKeys;
  const int bias = kPack == 2 ? 8 : keys ? 128 : 0;
  alignas(64) float most[kPageTokens];
  if (keys) {
    for (int lane = 0; lane < kPageTokens; lane += kWidth) {
      Reg largest = Set(0.0F);
      for (int r = 0; r < x.reduced; ++r) largest = Max(Abs(Numbers::At(x, r, lane)), largest);
      Store(most + lane, largest);
    }
  } else {
    for (int r = 0; r < kPageTokens; ++r) {
      Reg largest = Set(0.0F);
      for (int lane = 0; lane < x.lanes; lane += kWidth) {
        largest = Max(Abs(Numbers::At(x, r, lane)), largest);
      }
      most[r] = TreeMax(largest);
    }
  }
  alignas(64) float scale[kPageTokens];
  uint16_t halves[kPageTokens];
  Reg largest = Set(0.0F);
  for (int j = 0; j < kPageTokens; j += kWidth) {
    StoreHalf(halves + j, Div(Load(most + j), Set(kLimit)));
    const Reg rounded = Load(halves + j);
    Store(scale + j, rounded);
    largest = Max(rounded, largest);
  }
  const auto code = [&](int r, int lane) {
    const Reg by = keys ? Load(scale + lane) : Set(scale[r]);
    const Reg code = Clamp(Rounded(Div(Numbers::At(x, r, lane), by)), -kLimit, kLimit);
    return (ToInt(Select(Less(Set(0.0F), by), code, Set(0.0F))) + bias) & kMask;
  };
  PutCodes<kPack>(x, code, block.to);
  const ptrdiff_t codes = static_cast<ptrdiff_t>(x.reduced) * x.lanes / kPack;
  __builtin_memcpy(block.to + codes, halves, sizeof halves);
  if (!keys) *block.page_float = TreeMax(largest);
}

// kivi: every row's lanes in groups of 32 have a lowest number and a step.
struct KiviSides {
  alignas(64) float low[kMostDim];
  alignas(64) float step[kMostDim];
  alignas(64) float per_step[kMostDim];
};

// Of group g of row r at g · reduced + r: what KvFormat calls the group's index.
NIBBLE_INLINE void FindSides(const Numbers& x, float top, KiviSides& sides) {
  for (int g = 0; g * 32 < x.lanes; ++g) {
    const int end = g * 32 + 32 < x.lanes ? g * 32 + 32 : x.lanes;
    for (int r = 0; r < x.reduced; ++r) {
      Reg high = Numbers::At(x, r, g * 32);
      Reg low = high;
      for (int lane = g * 32 + kWidth; lane < end; lane += kWidth) {
        const Reg value = Numbers::At(x, r, lane);
        high = Max(value, high);
        low = Min(value, low);
      }
      const int index = g * x.reduced + r;
      sides.low[index] = -TreeMax(Negate(low));
      sides.step[index] = (TreeMax(high) - sides.low[index]) / top;
      sides.per_step[index] = sides.step[index] > 0 ? 1.0F / sides.step[index] : 0.0F;
    }
  }
}

// Step and base of four groups, even ones first, in 1/256 of the unit.
NIBBLE_INLINE void StoreKivi4Sides(const KiviSides& sides, int groups, float inverse,
                                   std::byte* to) {
  alignas(64) int32_t steps[kMostDim];
  alignas(64) int32_t bases[kMostDim];
  const auto fine = [&](const float* from) {
    return ToInt(Rounded(Mul(Mul(Load(from), Set(inverse)), Set(256.0F))));
  };
  for (int i = 0; i < groups; i += kWidth) {
    const Ints step = fine(sides.step + i);
    const Ints base = fine(sides.low + i) + 128;
    __builtin_memcpy(steps + i, &step, sizeof step);
    __builtin_memcpy(bases + i, &base, sizeof base);
  }
  constexpr int kSlots[4] = {0, 2, 1, 3};
  for (int quad = 0; quad < groups / 4; ++quad) {
    uint16_t words[8];
    for (int i = 0; i < 4; ++i) {
      words[kSlots[i]] = static_cast<uint16_t>(steps[4 * quad + i]);
      words[4 + kSlots[i]] = static_cast<uint16_t>(bases[4 * quad + i]);
    }
    __builtin_memcpy(to + static_cast<ptrdiff_t>(quad) * 16, words, sizeof words);
  }
}

// Four levels of each group.
NIBBLE_INLINE void StoreKivi2Sides(const KiviSides& sides, int groups, float inverse, int bias,
                                   std::byte* to) {
  for (int i = 0; i < groups; i += kWidth) {
    const Reg low = Mul(Load(sides.low + i), Set(inverse));
    const Reg step = Mul(Load(sides.step + i), Set(inverse));
    Words word = {};
    NIBBLE_UNROLL for (int l = 0; l < 4; ++l) {
      const Reg level = Rounded(Fma(Set(static_cast<float>(l)), step, low));
      const Ints stored = ToInt(Clamp(level, -127, 127)) + bias;
      word |= (__builtin_bit_cast(Words, stored) & 0xffU) << (8 * l);
    }
    __builtin_memcpy(to + static_cast<ptrdiff_t>(i) * 4, &word, sizeof word);
  }
}

template <int kPack>
NIBBLE_INLINE void SealKivi(const SealBlock& block, const Numbers& x, float most) {
  constexpr float kTop = (1 << (8 / kPack)) - 1;
  const float unit = most / 127.0F;
  const float inverse = unit > 0 ? 1.0F / unit : 0.0F;
  const int groups = (x.lanes + 31) / 32 * x.reduced;
  KiviSides sides;
  FindSides(x, kTop, sides);
  const auto code = [&](int r, int lane) {
    const int index = lane / 32 * x.reduced + r;
    const Reg above = Sub(Numbers::At(x, r, lane), Set(sides.low[index]));
    return ToInt(Clamp(Rounded(Mul(above, Set(sides.per_step[index]))), 0, kTop));
  };
  PutCodes<kPack>(x, code, block.to);
  std::byte* to = block.to + static_cast<ptrdiff_t>(x.reduced) * x.lanes / kPack;
  if (kPack == 2) {
    StoreKivi4Sides(sides, groups, inverse, to);
  } else {
    StoreKivi2Sides(sides, groups, inverse, block.side == KvSide::kKeys ? 128 : 0, to);
  }
  *block.page_float = unit;
}

// format/small_float.h's F32ToF8E4M3Saturating.
NIBBLE_INLINE Words ToFp8(Reg x) {
  const Words bits = BitsOf(x);
  const Words magnitude = bits & 0x7fffffffU;
  const Words normal = (magnitude - (120U << 23) + 0x7ffffU + ((magnitude >> 20) & 1U)) >> 20;
  const Words small = BitsOf(Add(FloatOf(magnitude), Set(0x1p14F))) - 0x46800000U;
  const Words finite = magnitude >= 0x3c800000U ? normal : small;
  return (magnitude >= 0x43e00000U ? finite * 0 + 0x7eU : finite) | ((bits >> 24) & 0x80U);
}

NIBBLE_INLINE void SealFp8(const SealBlock& block, const Numbers& x, float most) {
  using Bytes = uint8_t __attribute__((vector_size(kWidth)));
  const float scale = block.given_scale > 0 ? block.given_scale : most / 448.0F;
  *block.page_float = scale;
  if (!(scale > 0)) return;
  const int n = x.reduced * x.lanes;
  for (int i = 0; i < n; i += kWidth) {
    const Bytes codes = __builtin_convertvector(ToFp8(Div(Load(x.x + i), Set(scale))), Bytes);
    __builtin_memcpy(block.to + i, &codes, sizeof codes);
  }
}

}  // namespace

// Heads whose size is no multiple of 16, and blocks with a NaN, take the scalar form.
void Seal(const SealBlock& block) {
  const int n = kPageTokens * block.head_dim;
  const bool keys = block.side == KvSide::kKeys;
  float most = 0;
  if (block.head_dim % 16 != 0 || block.head_dim > kMostDim ||
      !ToFloats(block, n, block.scratch, most)) {
    SealScalar(block);
    return;
  }
  const Numbers x{block.scratch, keys ? block.head_dim : kPageTokens,
                  keys ? kPageTokens : block.head_dim};
  switch (block.format) {
    case KvFormat::kFp8:
      __builtin_memset(block.to, 0, static_cast<size_t>(n));
      return SealFp8(block, x, most);
    case KvFormat::kInt8:
      return SealPerToken<1>(block, x);
    case KvFormat::kInt4:
      return SealPerToken<2>(block, x);
    case KvFormat::kKivi4:
      return SealKivi<2>(block, x, most);
    case KvFormat::kKivi2:
      return SealKivi<4>(block, x, most);
    default:
      return SealScalar(block);
  }
}

}  // namespace nibble::NIBBLE_ISA_NS
