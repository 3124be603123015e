#include "advise/place_priors.h"

#include <algorithm>

#include "base/math.h"
#include "base/paging.h"
#include "cost/step_predictor.h"
#include "engine/plan.h"
#include "kv/storage/pool_sizes.h"
#include "platform/cpu.h"

namespace nibble {

Result<EngineOptions> ServedOptions(const ServedLoad& load, const ModelConfig& config,
                                    const KvFormats& kv, int batch) {
  EngineOptions options = load.options;
  options.kv = kv;
  options.max_context = load.context;
  options.max_running = batch;
  NIBBLE_TRY(const std::vector<KvGroup> groups, MakeKvGroups(config, kv));
  const int64_t tokens = int64_t{batch} * CeilDiv(load.context, kPageTokens) * kPageTokens;
  if (tokens > kMostKvTokens) {
    return BadInput("{} sequences of {} tokens are more than a cache can hold", batch,
                    load.context);
  }
  options.kv_memory = KvBytesFor(groups, static_cast<int>(tokens),
                                 {.max_rows = options.max_rows,
                                  .max_running = options.max_running,
                                  .prefix_cache = options.prefix_cache});
  return options;
}

Result<double> ServedMemory(const ModelConfig& config, const MemoryPlan& model,
                            const EngineOptions& options, int threads, double weight_bytes) {
  MemoryPlan planned = model;
  planned.weight_bytes = static_cast<size_t>(std::max(weight_bytes, 0.0));
  NIBBLE_TRY(const PlannedPools pools, PlanPools({.config = &config,
                                                  .model = planned,
                                                  .options = options,
                                                  .threads = threads,
                                                  .available = ReadTopology().memory_available}));
  return static_cast<double>(pools.plan.Total());
}

double WeightBytes(const ModelShape& shape, const WeightFormat& format) {
  double bytes = 0;
  for (const WeightGroup& group : shape.groups) {
    bytes += BytesOf(group, format, Counting::kTrue).value;
  }
  return bytes;
}

double StepSeconds(const CostModel& model, int batch, int context) {
  const StepSequence all{.first = std::max(context - 1, 0), .count = batch};
  return model.StepTime({&all, 1}).value;
}

double PromptSeconds(const CostModel& model, int tokens, int rows, int logits) {
  double seconds = 0;
  for (int first = 0; first < tokens; first += rows) {
    const int end = std::min(first + rows, tokens);
    const StepSequence chunk{.first = first,
                             .rows = end - first,
                             .logit_rows = std::clamp(end - (tokens - logits), 0, end - first)};
    seconds += model.StepTime({&chunk, 1}).value;
  }
  return seconds;
}

int LargestBatch(int most, double limit, const std::function<double(int)>& memory) {
  int low = 0;
  int high = most;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (memory(middle) <= limit) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace nibble
