#pragma once

#include <span>
#include <vector>

#include "quantize/dense_kernels.h"
#include "quantize/hessian_factor.h"
#include "tensor/matrix.h"

namespace nibble {

class ThreadPool;

// The grid of 16 rows while their columns are quantised one after another. Positions are those of
// HessianFactor::order.
class PanelGrid {
 public:
  virtual ~PanelGrid() = default;
  // How many columns from `position` on Begin reads; 0: it does nothing there.
  virtual int Ahead(int position) const = 0;
  // Fits what begins at `position` to the columns as they are compensated by now.
  // columns: [cols][16].
  virtual void Begin(int position, const float* columns) = 0;
  // Chooses the codes of one column. weights, values: [16]; the values that the codes stand for.
  virtual void Quantize(int position, const float* weights, float* values) = 0;
};

struct FeedbackTask {
  MatrixView<const float> w;  // [rows][cols]
  const HessianFactor* factor = nullptr;
  int block = 128;  // columns whose errors reach the rest together
};

// GPTQ's loop (arXiv 2210.17323, algorithm 1) over 16 rows at a time: each column's error,
// divided by U_ii, is subtracted from the columns behind it in proportion to U's row.
class ErrorFeedback {
 public:
  explicit ErrorFeedback(const FeedbackTask& task);
  // Quantises rows first … first + 15 (what is missing counts as zeros). losses: [cols] by column,
  // Σ over the rows of (w − q)² / (2 U_ii²).
  void Run(int first_row, PanelGrid& grid, float* losses);

 private:
  void Load(int first_row);
  int RunBlock(int begin, PanelGrid& grid, float* losses);

  FeedbackTask task_;
  int lanes_ = kPanel;
  std::vector<float> columns_;  // [cols][16]
  std::vector<float> errors_;   // [block][16]
};

// Sums of losses [panels][cols] over the panels, in their order.
std::vector<double> SumLosses(std::span<const float> losses, int cols);

}  // namespace nibble
