#pragma once

#include "cli/json_output.h"
#include "eval/divergence.h"

namespace nibble::cli {

// The statistics of `nibble eval --base`, for machines and for people.
Json DivergenceJson(const DivergenceResult& result);
void PrintDivergence(const DivergenceResult& result);

}  // namespace nibble::cli
