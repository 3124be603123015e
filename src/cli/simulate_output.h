#pragma once

#include <string>

#include "cli/json_output.h"
#include "cli/simulate_setup.h"

namespace nibble::cli {

// The report as a table for people.
std::string SimulationText(const SimulateSetup& setup, const SimulationResult& result);
// The keys of ServingReportJson and what else a simulation knows.
Json SimulationJson(const SimulateSetup& setup, const SimulationResult& result);

std::string CapacityText(const SimulateSetup& setup, const Capacity& capacity,
                         const LatencyLimits& limits);
Json CapacityJson(const SimulateSetup& setup, const Capacity& capacity,
                  const LatencyLimits& limits);

}  // namespace nibble::cli
