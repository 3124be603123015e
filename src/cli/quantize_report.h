#pragma once

#include <vector>

#include "cli/json_output.h"
#include "quantize/card.h"
#include "quantize/gguf_output.h"

namespace nibble::cli {

// What `quantize` prints: one JSON object, or the card for people.
Json QuantizeJson(const Card& card, const std::vector<TensorReport>& tensors, double seconds);
void PrintCard(const Card& card, double seconds);

}  // namespace nibble::cli
