#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace nibble {

struct KernelTable;

// Passes over one row of logits (up to hundreds of thousands of words) for samplers. All give the
// same result on every instruction set. A NaN logit is never chosen.

// The largest logit; -infinity when there is none.
float MaxLogit(const KernelTable& kernels, std::span<const float> logits);

// The index of the largest logit, the lowest among equals; 0 when all are NaN or -infinity.
int ArgMaxLogit(const KernelTable& kernels, std::span<const float> logits);

// Appends the indices of all logits >= threshold, ascending.
void CollectAtLeast(const KernelTable& kernels, std::span<const float> logits, float threshold,
                    std::vector<int32_t>& ids);

// Fills ids with the indices of the k largest logits (fewer if there are fewer numbers), largest
// first, equal ones by ascending index. Selects, never sorts the row: one pass at memory speed for
// the maxima of blocks, whose k-th largest bounds the k-th largest logit from below, and a visit of
// the blocks that reach it.
void SelectTopK(const KernelTable& kernels, std::span<const float> logits, int k,
                std::vector<int32_t>& ids);

}  // namespace nibble
