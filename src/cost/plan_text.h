#pragma once

#include <string>

#include "cost/plan.h"

namespace nibble {

// For people: the table, where a step's bytes go, why, and what is not modelled. 100 columns or
// more; UTF-8.
std::string PlanText(const Plan& plan);

// One line per row under the names of the JSON keys (RFC 4180).
std::string PlanCsv(const Plan& plan);

// "15.01 GB", "80 GB", "268.44 MB": two decimals, so that sums can be followed.
std::string SumBytes(Bytes bytes);
// "9.307 ms", "1.234 s".
std::string StepText(Seconds time);
// "1719", "56.7", "3.21".
std::string RateText(TokensPerSecond rate);
// "16.06 GB of weights + 8.59 GB of cache = 24.65 GB of 80 GB: fits".
std::string MemoryText(const PlanRow& row);
// "the cache passes the weights at about 115,000 tokens of context in total".
std::string CrossoverText(const PlanRow& row);
// "llama-3-8b on 2 × h100 (…)".
std::string PlanTitle(const PlanRequest& request);

}  // namespace nibble
