#pragma once

#include <optional>
#include <vector>

#include "base/result.h"
#include "cost/cost_model.h"
#include "kv/storage/pool_sizes.h"

namespace nibble {

// Of a device's memory, what weights and cache may take: activations, workspace and the driver need
// the rest. vLLM's gpu_memory_utilization has the same default.
inline constexpr double kUsableMemory = 0.9;

struct ModelledPools {
  std::vector<PoolSpec> pools;
  int tokens = 0;    // that the global layers hold
  double bytes = 0;  // of all devices
};

// Pages for the memory beside the weights, or for kv_bytes on all devices together. Where a KV head
// has copies on several devices they share these bytes. Errors: the weights alone do not fit, or
// not even one page.
Result<ModelledPools> PoolsOn(const CostModel& model, const PoolLimits& limits,
                              std::optional<size_t> kv_bytes);

}  // namespace nibble
