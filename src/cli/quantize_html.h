#pragma once

#include <string>
#include <vector>

#include "quantize/card.h"
#include "quantize/gguf_output.h"

namespace nibble::cli {

// The card as a page that needs nothing else: figures, recipe, and for each tensor its type, its
// bits and its error as a bar.
std::string QuantizeHtml(const Card& card, const std::vector<TensorReport>& tensors);

}  // namespace nibble::cli
