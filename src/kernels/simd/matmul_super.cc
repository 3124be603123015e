#include "kernels/simd/matmul_int8.h"
#include "kernels/simd/matmul_parts.h"

namespace nibble::NIBBLE_ISA_NS {

void AddSuperKernels(MatmulKernels& kernels) {
  const auto set = [&](Format format, PanelFn fn) { kernels.int8[static_cast<int>(format)] = fn; };
  set(Format::kQ2K, Int8Panels<Format::kQ2K>);
  set(Format::kQ3K, Int8Panels<Format::kQ3K>);
  set(Format::kQ4K, Int8Panels<Format::kQ4K>);
  set(Format::kQ5K, Int8Panels<Format::kQ5K>);
  set(Format::kQ6K, Int8Panels<Format::kQ6K>);
  set(Format::kIq4Xs, Int8Panels<Format::kIq4Xs>);
  set(Format::kNvfp4, Int8Panels<Format::kNvfp4>);
}

}  // namespace nibble::NIBBLE_ISA_NS
