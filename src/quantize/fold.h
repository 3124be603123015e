#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "tensor/matrix.h"

namespace nibble {

// Scales of channels moved between a layer and what comes before it, the model staying the same
// function: what comes before is divided by s, the columns of every consumer are multiplied.

// columns of w [rows][cols] · s [cols].
void ScaleColumns(MatrixView<float> w, std::span<const float> s);
// rows of w [rows][cols], and its bias (empty: none), / s [rows]: a linear before.
void DivideRows(MatrixView<float> w, std::span<float> bias, std::span<const float> s);
// A norm before. plus_one: the gain is 1 + weight (Hugging Face's Gemma). bias: empty without one.
void DivideNorm(std::span<float> weight, std::span<float> bias, std::span<const float> s,
                bool plus_one);

// Grouped queries: `heads / kv_heads` query heads read one value head, so that the scales of the
// output matrix's inputs [heads · head_dim] must agree among them before they can go into the value
// matrix. (AWQ's and AutoAWQ's code leave that pair out there.)
struct HeadGroups {
  int heads = 1;
  int kv_heads = 1;
  int head_dim = 1;
};
// Replaces each group's statistics by their mean.
void TieHeads(std::span<float> statistics, const HeadGroups& groups);
// [heads · head_dim] that agree → [kv_heads · head_dim]. Error: scales that differ in a group.
Result<std::vector<float>> ScalesOfValues(std::span<const float> s, const HeadGroups& groups);

}  // namespace nibble
