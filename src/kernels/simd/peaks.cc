// Compiled once per instruction set. Assembly, so that the compiler can neither fold nor spill.
#include "kernels/peaks.h"

namespace nibble::NIBBLE_ISA_NS {
namespace {

#define NIBBLE_REPEAT12(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

#if defined(__AVX2__)
#define NIBBLE_CLOBBERS                                                                    \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
      "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
#if defined(__AVX512F__)
#define NIBBLE_REGISTER "zmm"
constexpr int64_t kLanes = 16;
#else
#define NIBBLE_REGISTER "ymm"
constexpr int64_t kLanes = 8;
#endif
#define NIBBLE_R(i) "%%" NIBBLE_REGISTER #i
#if defined(__AVX512VNNI__)
#define NIBBLE_INT8(i) "vpdpbusd " NIBBLE_R(14) "," NIBBLE_R(15) "," NIBBLE_R(i) "\n"
#define NIBBLE_INT4 NIBBLE_INT8
#elif defined(__AVXVNNI__)
#define NIBBLE_INT8(i) "%{vex%} vpdpbusd " NIBBLE_R(14) "," NIBBLE_R(15) "," NIBBLE_R(i) "\n"
#define NIBBLE_INT4 NIBBLE_INT8
#else
#define NIBBLE_INT8(i) \
  "vpmaddubsw " NIBBLE_R(14) "," NIBBLE_R(15) "," NIBBLE_R(13) "\n" \
  "vpmaddwd " NIBBLE_R(12) "," NIBBLE_R(13) "," NIBBLE_R(13) "\n"   \
  "vpaddd " NIBBLE_R(13) "," NIBBLE_R(i) "," NIBBLE_R(i) "\n"
#define NIBBLE_INT4(i) \
  "vpmaddubsw " NIBBLE_R(14) "," NIBBLE_R(15) "," NIBBLE_R(13) "\n" \
  "vpaddw " NIBBLE_R(13) "," NIBBLE_R(i) "," NIBBLE_R(i) "\n"
#endif
#define NIBBLE_F32(i) "vfmadd231ps " NIBBLE_R(14) "," NIBBLE_R(15) "," NIBBLE_R(i) "\n"
#define NIBBLE_ZERO(i) "vxorps %%ymm" #i ",%%ymm" #i ",%%ymm" #i "\n"
// Whatever the registers held, products of it must not become denormals or NaN.
#define NIBBLE_CLEAR NIBBLE_REPEAT12(NIBBLE_ZERO) NIBBLE_ZERO(12) NIBBLE_ZERO(14) NIBBLE_ZERO(15)
#define NIBBLE_END "vzeroupper\n"
#else  // NEON with dot products
#define NIBBLE_CLOBBERS \
  "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v14", "v15"
constexpr int64_t kLanes = 4;
#define NIBBLE_INT8(i) "sdot v" #i ".4s, v14.16b, v15.16b\n"
#define NIBBLE_INT4 NIBBLE_INT8
#define NIBBLE_F32(i) "fmla v" #i ".4s, v14.4s, v15.4s\n"
#define NIBBLE_ZERO(i) "movi v" #i ".4s, #0\n"
#define NIBBLE_CLEAR NIBBLE_REPEAT12(NIBBLE_ZERO) NIBBLE_ZERO(14) NIBBLE_ZERO(15)
#define NIBBLE_END ""
#endif

int64_t Int8(int64_t rounds) {
  asm volatile(NIBBLE_CLEAR::: NIBBLE_CLOBBERS);
  for (int64_t i = 0; i < rounds; ++i) {
    asm volatile(NIBBLE_REPEAT12(NIBBLE_INT8)::: NIBBLE_CLOBBERS);
  }
  asm volatile(NIBBLE_END::: NIBBLE_CLOBBERS);
  return rounds * 12 * 4 * kLanes;
}

int64_t Int4(int64_t rounds) {
  asm volatile(NIBBLE_CLEAR::: NIBBLE_CLOBBERS);
  for (int64_t i = 0; i < rounds; ++i) {
    asm volatile(NIBBLE_REPEAT12(NIBBLE_INT4)::: NIBBLE_CLOBBERS);
  }
  asm volatile(NIBBLE_END::: NIBBLE_CLOBBERS);
  return rounds * 12 * 4 * kLanes;
}

int64_t F32(int64_t rounds) {
  asm volatile(NIBBLE_CLEAR::: NIBBLE_CLOBBERS);
  for (int64_t i = 0; i < rounds; ++i) {
    asm volatile(NIBBLE_REPEAT12(NIBBLE_F32)::: NIBBLE_CLOBBERS);
  }
  asm volatile(NIBBLE_END::: NIBBLE_CLOBBERS);
  return rounds * 12 * kLanes;
}

}  // namespace

extern const PeakKernels kPeakKernels;
const PeakKernels kPeakKernels = {Int8, Int4, F32};

}  // namespace nibble::NIBBLE_ISA_NS
