#include "kernels/attention_kernels.h"
#include "kernels/float_kernels.h"
#include "kernels/ref/attention_ref.h"
#include "kernels/ref/float_ref.h"

namespace nibble {

// The float kernels gain nothing from integer extensions: AVX-VNNI shares AVX2's. The kernels of
// sealed pages are there once per instruction set.
#if defined(__x86_64__)
namespace isa_avx2 {
extern const FloatKernels kFloatKernels;
extern const AttentionKernels kAttentionKernels;
void AddSealedKernels(AttentionKernels& kernels);
}  // namespace isa_avx2
namespace isa_avxvnni {
void AddSealedKernels(AttentionKernels& kernels);
}  // namespace isa_avxvnni
namespace isa_avx512 {
extern const FloatKernels kFloatKernels;
extern const AttentionKernels kAttentionKernels;
void AddSealedKernels(AttentionKernels& kernels);
}  // namespace isa_avx512
namespace isa_avx512vnni {
void AddSealedKernels(AttentionKernels& kernels);
}  // namespace isa_avx512vnni
#elif defined(__aarch64__)
namespace isa_neon {
extern const FloatKernels kFloatKernels;
extern const AttentionKernels kAttentionKernels;
void AddSealedKernels(AttentionKernels& kernels);
}  // namespace isa_neon
#endif

namespace {

AttentionKernels Join(const AttentionKernels& floats, void (*add)(AttentionKernels&)) {
  AttentionKernels kernels = floats;
  add(kernels);
  return kernels;
}

}  // namespace

const FloatKernels* FloatKernelsFor(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx2:
    case Isa::kAvxVnni:
      return &isa_avx2::kFloatKernels;
#ifndef NIBBLE_WITHOUT_AVX512
    case Isa::kAvx512:
    case Isa::kAvx512Vnni:
      return &isa_avx512::kFloatKernels;
#endif
#elif defined(__aarch64__)
    case Isa::kNeonDot:
      return &isa_neon::kFloatKernels;
#endif
    default:
      return &ref::kFloatKernels;
  }
}

const AttentionKernels* AttentionKernelsFor(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx2: {
      static const AttentionKernels kKernels =
          Join(isa_avx2::kAttentionKernels, isa_avx2::AddSealedKernels);
      return &kKernels;
    }
#ifndef NIBBLE_WITHOUT_AVXVNNI
    case Isa::kAvxVnni: {
      static const AttentionKernels kKernels =
          Join(isa_avx2::kAttentionKernels, isa_avxvnni::AddSealedKernels);
      return &kKernels;
    }
#endif
#ifndef NIBBLE_WITHOUT_AVX512
    case Isa::kAvx512: {
      static const AttentionKernels kKernels =
          Join(isa_avx512::kAttentionKernels, isa_avx512::AddSealedKernels);
      return &kKernels;
    }
#endif
#ifndef NIBBLE_WITHOUT_AVX512VNNI
    case Isa::kAvx512Vnni: {
      static const AttentionKernels kKernels =
          Join(isa_avx512::kAttentionKernels, isa_avx512vnni::AddSealedKernels);
      return &kKernels;
    }
#endif
#elif defined(__aarch64__)
    case Isa::kNeonDot: {
      static const AttentionKernels kKernels =
          Join(isa_neon::kAttentionKernels, isa_neon::AddSealedKernels);
      return &kKernels;
    }
#endif
    default:
      return &ref::ScalarAttentionKernels();
  }
}

}  // namespace nibble
