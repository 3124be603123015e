#pragma once

#include <functional>
#include <vector>

#include "base/result.h"
#include "cost/simulator.h"

namespace nibble {

// What users are promised; 0: nothing.
struct LatencyLimits {
  double ttft_s = 0;  // 99 of 100 first tokens come so soon
  double tpot_s = 0;  // and their answers go on so fast
};

struct CapacityTrial {
  double rate = 0;  // requests a second
  bool holds = false;
  SimulationResult result;
};

struct Capacity {
  double rate = 0;                         // the highest tried that holds; 0: none does
  bool bounded = false;                    // a higher one was tried that does not
  std::vector<CapacityTrial> trials = {};  // in the order of their trial
};

// Whether a report keeps the limits; nobody may be refused but those who never fit.
bool Holds(const SimulationResult& result, const LatencyLimits& limits);

// The highest rate of requests that keeps the limits, to 1%, by doubling or halving from `start`
// and then halving the interval. Takes the latencies to rise with the rate, which bursts of a
// random process need not do exactly: the trials are all given. Errors: those of `simulate`.
Result<Capacity> FindCapacity(const std::function<Result<SimulationResult>(double rate)>& simulate,
                              const LatencyLimits& limits, double start);

}  // namespace nibble
