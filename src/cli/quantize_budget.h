#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/quantize_job.h"
#include "quantize/tensor_choice.h"

namespace nibble::cli {

// Errors: neither --to nor --budget, a budget that is none, an output or a method that has no
// types to choose from.
Status CheckBudgetFlags(const QuantizeFlags& own);

// Gives every matrix that no rule names a type, by the divergence that it costs, so that the file
// is within --budget: measures (with progress) and prints the choice. beside: bytes of the file
// that are no tensors'. What the card is to say about it. Error: a budget below the smallest file.
Result<std::vector<std::string>> ChooseByBudget(const QuantizeJob& job, uint64_t beside,
                                                std::vector<TensorChoice>& choices);

// What tells two choices of types apart; empty without a budget.
std::string BudgetKey(const QuantizeJob& job, const std::vector<TensorChoice>& choices);

}  // namespace nibble::cli
