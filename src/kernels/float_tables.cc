#include "kernels/attention_kernels.h"
#include "kernels/float_kernels.h"
#include "kernels/ref/attention_ref.h"
#include "kernels/ref/float_ref.h"

namespace nibble {

// The integer extensions of an instruction set add nothing here: AVX-VNNI shares AVX2's kernels.
#if defined(__x86_64__)
namespace isa_avx2 {
extern const FloatKernels kFloatKernels;
extern const AttentionKernels kAttentionKernels;
}  // namespace isa_avx2
namespace isa_avx512 {
extern const FloatKernels kFloatKernels;
extern const AttentionKernels kAttentionKernels;
}  // namespace isa_avx512
#elif defined(__aarch64__)
namespace isa_neon {
extern const FloatKernels kFloatKernels;
extern const AttentionKernels kAttentionKernels;
}  // namespace isa_neon
#endif

namespace {

struct Tables {
  const FloatKernels* floats;
  const AttentionKernels* attention;
};

Tables TablesFor(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx2:
    case Isa::kAvxVnni:
      return {&isa_avx2::kFloatKernels, &isa_avx2::kAttentionKernels};
    case Isa::kAvx512:
    case Isa::kAvx512Vnni:
      return {&isa_avx512::kFloatKernels, &isa_avx512::kAttentionKernels};
#elif defined(__aarch64__)
    case Isa::kNeonDot:
      return {&isa_neon::kFloatKernels, &isa_neon::kAttentionKernels};
#endif
    default:
      return {&ref::kFloatKernels, &ref::kAttentionKernels};
  }
}

}  // namespace

const FloatKernels* FloatKernelsFor(Isa isa) { return TablesFor(isa).floats; }
const AttentionKernels* AttentionKernelsFor(Isa isa) { return TablesFor(isa).attention; }

}  // namespace nibble
