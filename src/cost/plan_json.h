#pragma once

#include <nlohmann/json.hpp>

#include "cost/plan.h"

namespace nibble {

// The keys that docs/plan.md lists; numbers are plain (bytes, seconds, tokens per second).
nlohmann::ordered_json PlanJson(const Plan& plan);

// Names that arguments of a plan may have.
nlohmann::ordered_json PlanChoicesJson();

}  // namespace nibble
