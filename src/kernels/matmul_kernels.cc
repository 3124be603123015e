#include "kernels/matmul_kernels.h"

#include <initializer_list>

#include "base/check.h"
#include "kernels/ref/matmul_ref.h"

// The parts of one instruction set, defined by the objects compiled for it.
#define NIBBLE_DECLARE_MATMUL(NS)                 \
  namespace nibble::NS {                          \
  void AddBlockKernels(MatmulKernels& kernels);   \
  void AddSuperKernels(MatmulKernels& kernels);   \
  void AddFloatKernels(MatmulKernels& kernels);   \
  void AddGroupedKernels(MatmulKernels& kernels); \
  void AddQuantiser(MatmulKernels& kernels);      \
  }

#if defined(__x86_64__)
NIBBLE_DECLARE_MATMUL(isa_avx2)
NIBBLE_DECLARE_MATMUL(isa_avxvnni)
NIBBLE_DECLARE_MATMUL(isa_avx512)
NIBBLE_DECLARE_MATMUL(isa_avx512vnni)
#elif defined(__aarch64__)
NIBBLE_DECLARE_MATMUL(isa_neon)
#endif

namespace nibble {
namespace {

using AddPart = void (*)(MatmulKernels&);

MatmulKernels Join(std::initializer_list<AddPart> parts) {
  MatmulKernels kernels{};
  for (const AddPart add : parts) add(kernels);
  return kernels;
}

}  // namespace

#define NIBBLE_JOIN(NS)                                                                       \
  Join({NS::AddBlockKernels, NS::AddSuperKernels, NS::AddFloatKernels, NS::AddGroupedKernels, \
        NS::AddQuantiser})

const MatmulKernels& MatmulKernelsFor(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return ScalarMatmulKernels();
#if defined(__x86_64__)
    case Isa::kAvx2: {
      static const MatmulKernels kKernels = NIBBLE_JOIN(isa_avx2);
      return kKernels;
    }
#ifndef NIBBLE_WITHOUT_AVXVNNI
    case Isa::kAvxVnni: {
      static const MatmulKernels kKernels = NIBBLE_JOIN(isa_avxvnni);
      return kKernels;
    }
#endif
#ifndef NIBBLE_WITHOUT_AVX512
    case Isa::kAvx512: {
      static const MatmulKernels kKernels = NIBBLE_JOIN(isa_avx512);
      return kKernels;
    }
#endif
#ifndef NIBBLE_WITHOUT_AVX512VNNI
    case Isa::kAvx512Vnni: {
      static const MatmulKernels kKernels = NIBBLE_JOIN(isa_avx512vnni);
      return kKernels;
    }
#endif
#elif defined(__aarch64__)
    case Isa::kNeonDot: {
      static const MatmulKernels kKernels = NIBBLE_JOIN(isa_neon);
      return kKernels;
    }
#endif
    default:
      NIBBLE_CHECK(false && "instruction set not compiled in");
  }
  return ScalarMatmulKernels();
}

}  // namespace nibble
