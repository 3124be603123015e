#pragma once

#include <string>

#include "cost/plan.h"

namespace nibble {

// The charts of a plan in one SVG document: bytes of a step, step times of the six pairs of
// formats, throughput against latency over batches, memory against context with the device's limit,
// where the cache passes the weights, memory of the weights by format.
std::string PlanSvg(const Plan& plan);

// One page that needs nothing else: the table, the charts, what is not modelled, the sources of the
// device's numbers.
std::string PlanHtml(const Plan& plan);

}  // namespace nibble
