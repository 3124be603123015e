#pragma once

#include <vector>

#include "base/result.h"
#include "engine/engine.h"

namespace nibble {

// Names an option that is out of range.
Status CheckOptions(const EngineOptions& options);

// Pages of each group so that the global layers hold `tokens` tokens. A windowed group needs no
// more than max_running sequences can hold at once.
std::vector<int> PagesForTokens(std::span<const KvGroup> groups, int tokens,
                                const EngineOptions& options);

struct PlannedPools {
  EnginePlan plan;
  std::vector<KvGroup> groups;
  std::vector<int> pages;  // one number per group
};

// Sizes the page pools and adds everything up. model: the decoder's plan; threads: of the pool;
// available: bytes free in the machine or cgroup. Errors: max_context beyond the model's own;
// kv_memory that holds no page.
struct PlanInput {
  const ModelConfig* config = nullptr;
  MemoryPlan model;
  EngineOptions options;
  int threads = 1;
  size_t available = 0;
};
Result<PlannedPools> PlanPools(const PlanInput& input);

}  // namespace nibble
