#pragma once

#include <bit>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "kernels/attention_kernels.h"
#include "kernels/float_kernels.h"
#include "kernels/kernel_table.h"
#include "platform/cpu.h"

namespace nibble::testing {

// The float and attention kernels of one instruction set.
inline KernelTable FloatTable(Isa isa) {
  return {isa, nullptr, AttentionKernelsFor(isa), FloatKernelsFor(isa)};
}

inline std::vector<uint32_t> Bits(std::span<const float> x) {
  std::vector<uint32_t> bits;
  bits.reserve(x.size());
  for (float value : x) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

inline std::vector<float> RandomFloats(size_t n, unsigned seed, float scale = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> x(n);
  for (float& value : x) value = normal(engine);
  return x;
}

}  // namespace nibble::testing
