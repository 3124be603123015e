#pragma once

#include <cstdint>

namespace nibble::NIBBLE_ISA_NS {
namespace {

// Eight floats that are computed alike, each as if it were alone: the bits are those of scalar
// code. Plain vector types of the compiler, without intrinsics.
using F32x8 = float __attribute__((vector_size(32)));
using I32x8 = int32_t __attribute__((vector_size(32)));  // also masks: −1 and 0

inline F32x8 Splat8(float value) { return F32x8{} + value; }
inline I32x8 Splat8(int32_t value) { return I32x8{} + value; }
inline F32x8 Select8(I32x8 mask, F32x8 yes, F32x8 no) {
  const auto bits =
      (mask & __builtin_bit_cast(I32x8, yes)) | (~mask & __builtin_bit_cast(I32x8, no));
  return __builtin_bit_cast(F32x8, bits);
}
inline I32x8 Select8(I32x8 mask, I32x8 yes, I32x8 no) { return (mask & yes) | (~mask & no); }
inline F32x8 Abs8(F32x8 x) {
  return __builtin_bit_cast(F32x8, __builtin_bit_cast(I32x8, x) & Splat8(0x7fffffff));
}
inline bool Any8(I32x8 mask) {
  int32_t any = 0;
  for (int i = 0; i < 8; ++i) any |= mask[i];
  return any != 0;
}
inline F32x8 ToFloat8(I32x8 x) { return __builtin_convertvector(x, F32x8); }

}  // namespace
}  // namespace nibble::NIBBLE_ISA_NS
