#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"
#include "cost/serving_report.h"
#include "cost/trace.h"
#include "engine/engine.h"

namespace nibble {

struct ReplayOptions {
  // Requests on their way at most; the next one follows when one has ended, whatever its time of
  // arrival. 0: by time of arrival.
  int concurrency = 0;
  uint64_t seed = 0;  // of the prompts
  // Called a few times a second with the requests that have ended; false: stop.
  std::function<bool(int done, int total)> progress = {};
};

struct ReplayResult {
  ServingReport report;
  std::vector<RequestTimes> requests;  // as the trace's
};

// Asks an engine the requests of a trace when they arrive, with random prompts and answers of
// exactly the given lengths, and waits for the last one. What the engine refuses (longer than the
// context, or the queue is full) is counted. The engine's counts must be those of this replay
// alone. Errors: kCancelled when progress said so.
Result<ReplayResult> Replay(Engine& engine, const Trace& trace, const ReplayOptions& options);

}  // namespace nibble
