#pragma once

#include <cstdint>
#include <span>
#include <vector>

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
  bool copy = false;      // floats of their own: an order or a rounding of ActForm

  ActNeeds operator|(ActNeeds o) const {
    return {f32 || o.f32, group32 || o.group32, group256 || o.group256, copy || o.copy};
  }
};

// How a checkpoint wants the input of a linear computed, whatever Act says.
enum class ActScheme : uint8_t {
  kUsual,         // as Act says
  kInt8Token,     // int8, one scale a row: absmax / 127
  kInt8Static,    // int8 with a given scale; beyond ±127 clamped
  kInt8Outliers,  // as kInt8Token, but values of at least a threshold stay floats: LLM.int8(),
                  // arXiv 2208.07339, here chosen row by row
  kF8Token,       // rounded to E4M3 · scale, one scale a row: absmax / 448; then floats
  kF8Static,      // the same with a given scale, saturating
};

// What an input becomes before it is multiplied.
struct ActForm {
  ActScheme scheme = ActScheme::kUsual;
  float scale = 0;                 // of the static schemes, positive
  float threshold = 0;             // kInt8Outliers: 0 or less: none are
  const int32_t* order = nullptr;  // [cols]: depth j is column order[j] of the input; or as it is
  bool operator==(const ActForm&) const = default;

  bool IsInt8() const {
    return scheme == ActScheme::kInt8Token || scheme == ActScheme::kInt8Static ||
           scheme == ActScheme::kInt8Outliers;
  }
  // Whether the floats of the input are changed.
  bool Copies() const { return order != nullptr || scheme > ActScheme::kInt8Token; }
};

// The input of one or several matmuls, prepared once: the floats and, where asked for, int8 codes
// with one scale and the sum of codes per group. What a row becomes depends on that row alone.
//
// Group of G consecutive depths: scale d = absmax / 127 (f32; 0 for an all-zero group, NaN for one
// with a NaN or infinity), code = round-half-even(x · (127 / absmax)) clamped to ±127, depth padded
// with zero codes to whole groups. A form may want the columns in another order, one scale for all
// groups of a row, or floats rounded to E4M3. Storage is owned and reused from step to step;
// Reserve fixes its largest size in advance.
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
               ActNeeds needs, FunctionRef<void(int row)> make_row = {}, const ActForm& form = {});

  // The rows as they are multiplied.
  MatrixView<const float> floats() const { return floats_; }
  // kInt8Outliers: the columns of a row that its codes leave out, ascending, and what is there.
  std::span<const int32_t> outliers(int row) const {
    return outliers_.empty() ? std::span<const int32_t>() : outliers_[static_cast<size_t>(row)];
  }
  MatrixView<const float> input() const { return x_; }

 private:
  friend struct ActivationAccess;
  void FormRow(const ActForm& form, int row, float* to);

  MatrixView<const float> x_;
  MatrixView<const float> floats_;
  std::vector<std::vector<int32_t>> outliers_;  // by row; none: no row has any
  ActNeeds needs_;
  AlignedBuffer storage_;
};

}  // namespace nibble
