#pragma once

#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "kv/page_book.h"

namespace nibble {

// Names an option that is out of range.
Status CheckOptions(const EngineOptions& options);

// As kv/storage/pool_sizes.h, with the limits of these options.
std::vector<PoolSpec> PoolsForTokens(std::span<const KvGroup> groups, int tokens,
                                     const EngineOptions& options);

struct PlannedPools {
  EnginePlan plan;
  std::vector<KvGroup> groups;
  std::vector<PoolSpec> pools;  // one per group
  std::vector<KvGroup> draft_groups;
  std::vector<PoolSpec> draft_pools;

  // As KvStorage takes them: open pages, or all where the forms are one, and sealed ones.
  std::vector<int> OpenPages() const;
  std::vector<int> SealedPages() const;
};

// Sizes the page pools and adds everything up. model: the decoder's plan; threads: of the pool;
// available: bytes free in the machine or cgroup. Without kv_memory the pages get half of what is
// left beside everything else, or as much as min_contexts whole contexts need. Errors: max_context
// beyond the model's own; kv_memory that holds no page. A draft model's pages hold as many tokens.
struct PlanInput {
  const ModelConfig* config = nullptr;
  MemoryPlan model;
  const ModelConfig* draft_config = nullptr;
  MemoryPlan draft = {};
  EngineOptions options;
  int threads = 1;
  size_t available = 0;
};
Result<PlannedPools> PlanPools(const PlanInput& input);

}  // namespace nibble
