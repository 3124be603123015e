#include "kernels/simd/matmul_f32.h"
#include "kernels/simd/matmul_int8.h"
#include "kernels/simd/matmul_parts.h"

namespace nibble::NIBBLE_ISA_NS {

void AddGroupedKernels(MatmulKernels& kernels) {
  const auto set = [&]<Format kFormat>() {
    kernels.int8[static_cast<int>(kFormat)] = Int8Panels<kFormat>;
    kernels.f32[static_cast<int>(kFormat)] = F32Panels<kFormat>;
  };
  set.template operator()<Format::kW4G32>();
  set.template operator()<Format::kW4G64>();
  set.template operator()<Format::kW4G128>();
  set.template operator()<Format::kW8G32>();
  set.template operator()<Format::kW8G64>();
  set.template operator()<Format::kW8G128>();
}

}  // namespace nibble::NIBBLE_ISA_NS
