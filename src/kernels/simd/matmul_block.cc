#include "kernels/simd/matmul_int8.h"
#include "kernels/simd/matmul_parts.h"

namespace nibble::NIBBLE_ISA_NS {

void AddBlockKernels(MatmulKernels& kernels) {
  const auto set = [&](Format format, PanelFn fn) { kernels.int8[static_cast<int>(format)] = fn; };
  set(Format::kQ4_0, Int8Panels<Format::kQ4_0>);
  set(Format::kQ4_1, Int8Panels<Format::kQ4_1>);
  set(Format::kQ5_0, Int8Panels<Format::kQ5_0>);
  set(Format::kQ5_1, Int8Panels<Format::kQ5_1>);
  set(Format::kQ8_0, Int8Panels<Format::kQ8_0>);
  set(Format::kIq4Nl, Int8Panels<Format::kIq4Nl>);
  set(Format::kMxfp4, Int8Panels<Format::kMxfp4>);
}

}  // namespace nibble::NIBBLE_ISA_NS
