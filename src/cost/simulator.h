#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cost/arrivals.h"
#include "cost/serving_report.h"
#include "cost/step_timer.h"
#include "sched/scheduler.h"

namespace nibble {

// A step as it was planned.
struct SimulatedStep {
  int64_t number = 0;  // from 1
  double begin_s = 0;
  double seconds = 0;
  double price_s = 0;  // by the scheduler's table
  int rows = 0;
  int prompt_rows = 0;  // of those, not the next one of an answer
  int sequences = 0;
  int accepted = 0;  // tokens that it gave
  int admitted = 0;
  int preempted = 0;
  int running = 0;   // behind it
  int waiting = 0;   // behind it
  int kv_pages = 0;  // in use, of all groups
};

// A request that has ended, or was refused.
struct SimulatedRequest {
  size_t index = 0;
  int64_t line = 0;
  double arrival_s = 0;
  double begin_s = 0;  // of the first step that computed any of it
  double first_token_s = 0;
  double last_token_s = 0;
  int input_tokens = 0;
  int output_tokens = 0;
  int cached_tokens = 0;
  int preemptions = 0;
  bool rejected = false;
  bool finished = false;
};

class SimulationObserver {
 public:
  virtual ~SimulationObserver() = default;
  virtual void OnStep(const SimulatedStep& /*step*/) {}
  virtual void OnRequest(const SimulatedRequest& /*request*/) {}
};

struct SimulatorOptions {
  SchedulerLimits limits;
  std::vector<PoolSpec> pools;  // one per KV group
  PageBookOptions pages = {};
  StepPrice price = {};  // for the scheduler; empty: no budget of time
  int max_context = 0;   // most tokens of prompt and answer
  uint64_t seed = 0;     // of the prompts' tokens
  // Requests come as a log of our own server says, before the step before which they were queued
  // there, whatever the clock shows.
  bool by_step = false;
  // Called every few hundred steps with the requests that have ended; false: stop.
  std::function<bool(int64_t done)> progress = {};
};

struct SimulationResult {
  ServingReport report;
  int64_t never_fit = 0;    // of the refused ones: longer than the context or than all pages
  std::string first_unfit;  // why the first of them was refused, with its line
  double busy_s = 0;        // of all steps
  int64_t rows = 0;         // that were computed
  int64_t cancelled = 0;    // by_step: as the log says
};

// Drives the scheduler and the page pool that a server drives, with a virtual clock and no tensors.
// Prompts are random tokens that begin alike where the trace says so (TracePrompt); answers have
// the trace's lengths. Memory: what is running and waiting, whatever the trace's length. Errors:
// the source's; kCancelled; no request of the trace can ever run.
Result<SimulationResult> Simulate(ArrivalSource& source, StepTimer& timer,
                                  const SimulatorOptions& options,
                                  SimulationObserver* observer = nullptr);

}  // namespace nibble
