#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/result.h"
#include "format/format.h"
#include "kernels/activations.h"
#include "tensor/matrix.h"

namespace nibble {

class ThreadPool;
struct KernelTable;

// A weight matrix [rows = outputs][cols = inputs] in kernel order: panels of 16 output rows, the
// same bytes on every instruction set; the layout of each format is at its packer. Lossless: the
// codes and scales of the file in another order. Does not own its bytes.
class PackedMatrix {
 public:
  PackedMatrix() = default;

  // Bytes of the packed form: what a memory plan adds up. A multiple of 64.
  static size_t Bytes(Format format, int rows, int cols);

  // Packs file rows (each TraitsOf(format).RowBytes(cols) bytes) into dst (Bytes() bytes, 64-byte
  // aligned), in parallel. cols must be a multiple of the format's block.
  static PackedMatrix Pack(Format format, int rows, int cols, std::span<const std::byte> file_rows,
                           std::span<std::byte> dst, ThreadPool& pool);

  // The same matrix in other bytes (dst: Bytes(), 64-byte aligned).
  PackedMatrix CopyTo(std::span<std::byte> dst) const;

  Format format() const { return format_; }
  int rows() const { return rows_; }
  int cols() const { return cols_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  bool empty() const { return rows_ == 0; }

  // What this matrix needs of its input under an arithmetic (F32, F16, BF16 and FP8 weights always
  // compute as act=f32).
  ActNeeds Needs(Act act) const { return NeedsOf(format_, act, input_); }
  static ActNeeds NeedsOf(Format format, Act act, const ActForm& form = {});

  // Factors of the rows [rows], applied behind the product, and what its input becomes before it.
  // Neither is owned.
  void SetRowScales(const float* scales) { row_scales_ = scales; }
  const float* row_scales() const { return row_scales_; }
  void SetInput(const ActForm& form) { input_ = form; }
  const ActForm& input() const { return input_; }

  // FP8 whose scales are shared by blocks: w[r][k] = value · scales[k / depth][r], rounded once,
  // before the product. [ceil(cols / depth)][rows rounded up to 16], finite where there is no row;
  // not owned. kF8E4M3 only.
  void SetBlockScales(const float* scales, int depth);
  static size_t BlockScaleFloats(int rows, int cols, int depth);
  const float* block_scales() const { return block_scales_; }
  int block_depth() const { return block_depth_; }

  // Decodes one row (an embedding tied to the output is stored once). dst: cols floats, exactly
  // the values of the format's reference decoder, times its scales. In the packed order of
  // the columns.
  void DecodeRow(int row, float* dst) const;

 private:
  Format format_ = Format::kF32;
  int rows_ = 0;
  int cols_ = 0;
  std::span<const std::byte> bytes_;
  const float* row_scales_ = nullptr;
  const float* block_scales_ = nullptr;
  int block_depth_ = 0;
  ActForm input_;
};

// y[t][r] = Σ_k w[r][k] · x[t][k] (+ bias[r]) (+ y[t][r] before, when accumulate).
struct MatmulTask {
  const PackedMatrix* weights = nullptr;
  MatrixView<float> y;          // [tokens][weights->rows()]
  const float* bias = nullptr;  // [weights->rows()]
  bool accumulate = false;
};

// Runs all tasks on one input, which has been prepared in their form, in one parallel region; where
// the input has outliers, they are added behind it (kernels/outliers.h). token_rows picks rows of x
// (y row i belongs to x row token_rows[i]; an empty list computes nothing); absent: all rows in
// order. One element's bits depend on its own weight row and its own x row only: not on the other
// tokens, tasks or the number of threads.
void Matmul(const KernelTable& kernels, ThreadPool& pool, Act act, const ActivationBlock& x,
            std::span<const MatmulTask> tasks,
            std::optional<std::span<const int>> token_rows = std::nullopt);

}  // namespace nibble
