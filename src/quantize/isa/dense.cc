// Compiled for each instruction set into the namespace NIBBLE_ISA_NS.
#include <cstring>

#include "quantize/isa/dense_table.h"

namespace nibble::NIBBLE_ISA_NS {
namespace {

#if defined(__AVX512F__)
constexpr int kWidth = 16;
constexpr int kRows = 16;  // accumulators that the registers hold
constexpr int kColumns = 8;
#elif defined(__AVX2__)
constexpr int kWidth = 8;
constexpr int kRows = 8;
constexpr int kColumns = 4;
#else
constexpr int kWidth = 4;
constexpr int kRows = 8;
constexpr int kColumns = 4;
#endif
using Lanes = float __attribute__((vector_size(kWidth * sizeof(float))));

__attribute__((always_inline)) inline Lanes Load(const float* p) {
  Lanes v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
__attribute__((always_inline)) inline void Store(float* p, const Lanes& v) {
  std::memcpy(p, &v, sizeof v);
}

void Products(const float* a, const float* b, int count, float* sums) {
  for (int c = 0; c < kPanel; c += kWidth) {
    for (int r = 0; r < kPanel; r += kRows) {
      Lanes sum[kRows] = {};
      for (int t = 0; t < count; ++t) {
        const Lanes right = Load(b + t * kPanel + c);
        const float* left = a + t * kPanel + r;
#pragma GCC unroll 16
        for (int i = 0; i < kRows; ++i) sum[i] += right * left[i];
      }
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) Store(sums + (r + i) * kPanel + c, sum[i]);
    }
  }
}

// A few columns at a time, so that an error is read once for all of them.
template <int kCount>
__attribute__((always_inline)) inline void SubtractFew(float* columns, const float* errors,
                                                       const float* u, ptrdiff_t u_stride,
                                                       int count) {
  for (int lane = 0; lane < kPanel; lane += kWidth) {
    Lanes column[kCount];
#pragma GCC unroll 8
    for (int j = 0; j < kCount; ++j) column[j] = Load(columns + j * kPanel + lane);
    const float* row = u;
    for (int k = 0; k < count; ++k, row += u_stride) {
      const Lanes error = Load(errors + k * kPanel + lane);
#pragma GCC unroll 8
      for (int j = 0; j < kCount; ++j) column[j] -= error * row[j];
    }
#pragma GCC unroll 8
    for (int j = 0; j < kCount; ++j) Store(columns + j * kPanel + lane, column[j]);
  }
}

void Subtract(float* columns, const float* errors, const float* u, ptrdiff_t u_stride, int count,
              int begin, int end) {
  int j = begin;
  for (; j + kColumns <= end; j += kColumns) {
    SubtractFew<kColumns>(columns + ptrdiff_t{j} * kPanel, errors, u + j, u_stride, count);
  }
  for (; j < end; ++j) {
    SubtractFew<1>(columns + ptrdiff_t{j} * kPanel, errors, u + j, u_stride, count);
  }
}

}  // namespace

const DenseKernels kDenseKernels = {Products, Subtract};

}  // namespace nibble::NIBBLE_ISA_NS
