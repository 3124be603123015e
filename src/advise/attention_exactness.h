#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/activations.h"
#include "kernels/kv_view.h"

namespace nibble {

class ThreadPool;
struct KernelTable;

// Attention over random queries, keys and values beside the naive formula in double over the values
// that the pages hold: what a format costs is not in it (KvErrorBound), what integer products over
// sealed pages cost is.
struct AttentionExactness {
  int positions = 0;           // in the cache, the queries' own included
  double max_error = 0;        // largest |attention - formula| over all outputs
  double bound = 0;            // of that very output (attention_naive.cc)
  double worst_ratio = 0;      // largest error / bound over all outputs: at most 1
  size_t workspace_bytes = 0;  // of the call: does not depend on the positions
};

struct AttentionExactnessOptions {
  int heads = 4;
  int kv_heads = 1;
  int head_dim = 64;
  KvFormat k = KvFormat::kF16;
  KvFormat v = KvFormat::kF16;
  Act act = Act::kInt8;
  int rows = 8;  // queries at the end of the context: computed in one step, and again one by one
};

inline constexpr int kExactnessPositions[] = {1024, 8192, 32768};

// One entry per context length. Takes about a second for 32,768 positions. kNoRoom when the pages
// find no memory.
Result<std::vector<AttentionExactness>> MeasureAttentionExactness(
    const KernelTable& kernels, ThreadPool& pool,
    std::span<const int> positions = kExactnessPositions,
    const AttentionExactnessOptions& options = {});

}  // namespace nibble
