#pragma once

#include "kernels/matmul_kernels.h"

// Pieces of one instruction set's MatmulKernels row, compiled apart so that no source takes long.
namespace nibble::NIBBLE_ISA_NS {

void AddBlockKernels(MatmulKernels& kernels);  // int8, blocks of 32
void AddSuperKernels(MatmulKernels& kernels);  // int8, k-quants, IQ4_XS, NVFP4
void AddFloatKernels(MatmulKernels& kernels);  // act=f32, all formats but the grouped ones
// Both arithmetics of w4g32 … w8g128.
void AddGroupedKernels(MatmulKernels& kernels);
inline constexpr int kGroupedFormats = 6;
void AddQuantiser(MatmulKernels& kernels);

}  // namespace nibble::NIBBLE_ISA_NS
