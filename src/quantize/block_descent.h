#pragma once

#include <vector>

#include "quantize/block_rows.h"
#include "quantize/hessian_factor.h"
#include "tensor/matrix.h"

namespace nibble {

// Cyclic descent on E = (ŵ − w) H (ŵ − w)ᵀ of 16 rows, over their codes and stored scales. It keeps
// the gradient H (ŵ − w), so that a column whose code stays costs nothing.
class BlockDescent {
 public:
  // h: [cols][cols], damped. dead: columns whose weights count as 0.
  BlockDescent(MatrixView<const float> w, const float* h, const std::vector<uint8_t>& dead);

  // rows: filled. Returns ½ Σ E over the rows that w has.
  double Run(int first_row, int passes, BlockRows& rows);

 private:
  void Start(int first_row, BlockRows& rows);
  bool MoveCodes(BlockRows& rows);
  bool MoveGroupScales(BlockRows& rows, int block, int group);
  bool MoveBlockScale(BlockRows& rows, int block, bool min);
  // H v of a range of columns: [count][16].
  void ProductWithin(const float* v, int first, int count);
  // ŵ changes by `change` [count][16] in columns first …
  void Apply(const float* change, int first, int count);

  const float* Row(int column) const { return h_ + ptrdiff_t{column} * w_.cols; }

  MatrixView<const float> w_;
  const float* h_;
  const std::vector<uint8_t>& dead_;
  int lanes_ = kPanel;
  std::vector<float> target_;                                    // [cols][16]
  std::vector<float> value_;                                     // [cols][16] ŵ
  std::vector<float> gradient_;                                  // [cols][16]
  std::vector<float> levels_, change_, product_, ones_product_;  // [256][16]
};

}  // namespace nibble
