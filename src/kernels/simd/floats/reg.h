#pragma once

// One vector register of floats and the operations that the float kernels need. Each instruction
// set's own header gives the same set; all code here has internal linkage, so that no object built
// with wider instructions can lend a function to code that must run without them.
#if !defined(NIBBLE_ISA_NS)
#error "reg.h is compiled once per instruction set (nibble_isa_objects)"
#endif

#define NIBBLE_INLINE [[gnu::always_inline]] static inline
#define NIBBLE_UNROLL _Pragma("GCC unroll 16")

#include <cstdint>

namespace nibble::NIBBLE_ISA_NS {
namespace {

struct Fp8 {  // E4M3
  uint8_t bits;
};

}  // namespace
}  // namespace nibble::NIBBLE_ISA_NS

#if defined(__AVX512F__)
#include "kernels/simd/floats/reg_avx512.h"
#elif defined(__AVX2__)
#include "kernels/simd/floats/reg_avx2.h"
#elif defined(__aarch64__)
#include "kernels/simd/floats/reg_neon.h"
#endif
