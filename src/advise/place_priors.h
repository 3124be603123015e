#pragma once

#include <functional>
#include <optional>
#include <string>

#include "advise/advice.h"
#include "base/result.h"
#include "cost/cost_model.h"
#include "engine/engine.h"

namespace nibble {

// Who is to be served, and where.
struct ServedLoad {
  int concurrency = 1;
  int context = 2048;     // tokens of each sequence, prompt and answer together
  double memory = 1e300;  // most bytes
  EngineOptions options;  // of the server beside kv, max_context, kv_memory and max_running
};

// The options of a server for `batch` sequences of the whole context each. Errors: formats that the
// model cannot have.
Result<EngineOptions> ServedOptions(const ServedLoad& load, const ModelConfig& config,
                                    const KvFormats& kv, int batch);

// What the server's plan says it takes (EnginePlan::Total), of a model of which only the weights
// are others: weight_bytes of them. model: of a decoder with these options' rows and context, which
// does not depend on the cache.
Result<double> ServedMemory(const ModelConfig& config, const MemoryPlan& model,
                            const EngineOptions& options, int threads, double weight_bytes);

// Bytes of a model's weights in a format.
double WeightBytes(const ModelShape& shape, const WeightFormat& format);

// One step in which `batch` sequences get their next token behind context - 1 others.
double StepSeconds(const CostModel& model, int batch, int context);
// A prompt of so many tokens alone, in chunks of `rows`; `logits`: rows that give logits.
double PromptSeconds(const CostModel& model, int tokens, int rows, int logits = 1);

// The largest batch up to `most` for which memory(batch), which grows with it, is at most `limit`;
// 0: not even one.
int LargestBatch(int most, double limit, const std::function<double(int batch)>& memory);

}  // namespace nibble
