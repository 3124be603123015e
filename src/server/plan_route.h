#pragma once

#include <string_view>

#include "cost/plan.h"
#include "server/api_error.h"
#include "server/json_text.h"

namespace nibble::server {

// What GET /plan answers: the arguments of `nibble plan` as a query string, its JSON back, and
// under "choices" the names that may be asked for. A query without arguments is the cost model's
// own example. Errors: 400 with the argument's name.
ApiResult<Json> AnswerPlan(std::string_view query, const PlanSources& sources);

// Rows that one query may ask for: so many take a few milliseconds of the thread that serves all.
inline constexpr size_t kMostPlanRows = 256;

}  // namespace nibble::server
