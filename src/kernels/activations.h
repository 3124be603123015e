#pragma once

#include <cstdint>
#include <span>

#include "base/function_ref.h"
#include "base/result.h"
#include "platform/memory.h"
#include "tensor/matrix.h"

namespace nibble {

class ThreadPool;
struct KernelTable;

// Arithmetic of the activations in a matmul (architecture.md §3).
enum class Act : uint8_t { kInt8, kF32 };

// Which forms of an input its consumers need.
struct ActNeeds {
  bool f32 = false;
  bool group32 = false;   // int8, one scale per 32 depths
  bool group256 = false;  // int8, one scale per 256 depths

  ActNeeds operator|(ActNeeds o) const {
    return {f32 || o.f32, group32 || o.group32, group256 || o.group256};
  }
};

// The input of one or several matmuls, prepared once: the floats and, where asked for, int8 codes
// with one scale and the sum of codes per group. What a row becomes depends on that row alone.
//
// Group of G consecutive depths: scale d = absmax / 127 (f32; 0 for an all-zero group, NaN for one
// with a NaN or infinity), code = round-half-even(x · (127 / absmax)) clamped to ±127, depth padded
// with zero codes to whole groups. Storage is owned and reused from step to step; Reserve fixes its
// largest size in advance.
class ActivationBlock {
 public:
  ActivationBlock() = default;

  // Bytes that Reserve(rows, cols, needs) allocates.
  static size_t Bytes(int rows, int cols, ActNeeds needs);
  Status Reserve(int rows, int cols, ActNeeds needs);

  // Quantises x [rows][cols] (rows and cols within the reserved size); the view must stay valid
  // while the block is used (act=f32 reads it in place). make_row, where given, is called for every
  // row first and makes it (a norm, a gate), so that the row is in the nearest cache.
  void Prepare(const KernelTable& kernels, ThreadPool& pool, MatrixView<const float> x,
               ActNeeds needs, FunctionRef<void(int row)> make_row = {});

  MatrixView<const float> floats() const { return x_; }

 private:
  friend struct ActivationAccess;
  MatrixView<const float> x_;
  ActNeeds needs_;
  AlignedBuffer storage_;
};

}  // namespace nibble
