#pragma once

// Prefetching of pages: while one is computed with, a later one comes near (into the first cache),
// and one further on far (into the second). Every line is asked for along with the multiplies of
// its own line: in bunches they fill the processor's buffers for lines on their way, and the loads
// behind them wait.
#include "kernels/attention_kernels.h"

namespace nibble::NIBBLE_ISA_NS {
namespace {

constexpr int kNearPages = 1;
constexpr int kFarPages = 6;

// The page `pages` on, or the last one known.
__attribute__((always_inline)) static inline const std::byte* PageAhead(const AttentionTask& task,
                                                                        int page, int pages) {
  const int last = task.known_pages - 1;
  return task.pages[page + pages < last ? page + pages : last];
}

}  // namespace
}  // namespace nibble::NIBBLE_ISA_NS
