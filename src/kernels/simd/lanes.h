#pragma once

// Sixteen lanes, one per row of a panel, on every instruction set: one AVX-512 register, two AVX2,
// four NEON. Compiled once per instruction set inside NIBBLE_ISA_NS; everything is static, so that
// no copy can leak to a machine that lacks the instructions.
//
//   U8x64   codes of one step, [16 rows][4 depths]
//   I32x16, F32x16   one number per row
#define NIBBLE_INLINE static inline __attribute__((always_inline))
// Every loop over an array of vectors must be unrolled, its initialisation too, or GCC keeps the
// array in memory.
#define NIBBLE_UNROLL _Pragma("GCC unroll 16")

#if defined(__AVX512F__)
#include "kernels/simd/lanes_avx512.h"
#elif defined(__AVX2__)
#include "kernels/simd/lanes_avx2.h"
#elif defined(__ARM_NEON)
#include "kernels/simd/lanes_neon.h"
#endif
