#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "format/format.h"
#include "quantize/tensor_view.h"

namespace nibble {

class ThreadPool;

// One way to store a tensor, and what it costs in quality.
struct BudgetOption {
  uint64_t bytes = 0;
  double loss = 0;
};

// The option of every item, so that all bytes together are at most `budget`. From the smallest of
// each it goes up the lower hull of losses over bytes, always the step that takes the most loss
// away per byte among those that fit: the loss is above the least possible by at most one step.
// options: of each item, at least one, in any order. Error: a budget below the smallest (both
// numbers).
Result<std::vector<size_t>> ChooseWithinBudget(std::span<const std::vector<BudgetOption>> options,
                                               uint64_t budget);

// The types that a matrix may get under a budget, fewest bits first: those whose blocks divide its
// columns and that are smaller than what it is stored in, and that type itself where a GGUF file
// can hold it.
std::vector<Format> BudgetFormats(const TensorView& view);

// The squared error of each format over the squares, on at most 256 rows spread over the matrix.
// Weights that are not finite give no numbers.
std::vector<double> SampleErrors(const TensorView& view, std::span<const Format> formats,
                                 ThreadPool& pool);

}  // namespace nibble
