#include "kernels/peaks.h"

#include <cmath>

#include "base/check.h"
#include "kernels/panel_layout.h"
#include "platform/cpu.h"

namespace nibble {
namespace {

// What the scalar twin can do: the compiler's own code for one accumulator per element.
int64_t ScalarInt(int64_t rounds) {
  volatile int32_t weight = 7;
  volatile int32_t activation = -3;
  int32_t sums[4] = {};
  const int32_t w = weight;
  const int32_t a = activation;
  for (int64_t i = 0; i < rounds; ++i) {
    for (int32_t& sum : sums) {
      sum += w * a;
      asm volatile("" : "+r"(sum));
    }
  }
  return rounds * 4;
}

int64_t ScalarFloat(int64_t rounds) {
  volatile float weight = 0;
  float sums[4] = {};
  const float w = weight;
  for (int64_t i = 0; i < rounds; ++i) {
    for (float& sum : sums) {
      sum = std::fma(w, w, sum);
      asm volatile("" : "+m"(sum));
    }
  }
  return rounds * 4;
}

constexpr PeakKernels kScalarPeaks = {ScalarInt, ScalarInt, ScalarFloat};

}  // namespace

#if defined(__x86_64__)
namespace isa_avx2 {
extern const PeakKernels kPeakKernels;
}
namespace isa_avxvnni {
extern const PeakKernels kPeakKernels;
}
namespace isa_avx512 {
extern const PeakKernels kPeakKernels;
}
namespace isa_avx512vnni {
extern const PeakKernels kPeakKernels;
}
#elif defined(__aarch64__)
namespace isa_neon {
extern const PeakKernels kPeakKernels;
}
#endif

const PeakKernels& PeakKernelsFor(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return kScalarPeaks;
#if defined(__x86_64__)
    case Isa::kAvx2:
      return isa_avx2::kPeakKernels;
#ifndef NIBBLE_WITHOUT_AVXVNNI
    case Isa::kAvxVnni:
      return isa_avxvnni::kPeakKernels;
#endif
#ifndef NIBBLE_WITHOUT_AVX512
    case Isa::kAvx512:
      return isa_avx512::kPeakKernels;
#endif
#ifndef NIBBLE_WITHOUT_AVX512VNNI
    case Isa::kAvx512Vnni:
      return isa_avx512vnni::kPeakKernels;
#endif
#elif defined(__aarch64__)
    case Isa::kNeonDot:
      return isa_neon::kPeakKernels;
#endif
    default:
      break;
  }
  NIBBLE_CHECK(false && "kernels of this instruction set are not compiled in");
}

std::string_view PeakName(Peak peak) {
  constexpr std::string_view kNames[] = {"int4", "int8", "f32"};
  return kNames[static_cast<size_t>(peak)];
}

Peak PeakOf(Format format, Act act) {
  const PanelLayout layout = PanelLayoutOf(format);
  if (act == Act::kF32 || layout.act_group == 0) return Peak::kF32;
  switch (layout.planes) {
    case CodePlanes::kCrumb:
    case CodePlanes::kCrumbBit:
      return Peak::kInt4;
    case CodePlanes::kNibble:
      return layout.table == CodeTable::kIq4 ? Peak::kInt8 : Peak::kInt4;
    default:
      return Peak::kInt8;
  }
}

Peak PeakOf(KvFormat sealed, Act act) {
  const KvFormatTraits& traits = TraitsOf(sealed);
  if (act == Act::kF32 || !traits.integer) return Peak::kF32;
  return sealed == KvFormat::kInt4 ? Peak::kInt4 : Peak::kInt8;  // the kivis' levels are bytes
}

}  // namespace nibble
