#pragma once

#include <filesystem>
#include <vector>

namespace nibble::testing {

// Logits [ids][vocabulary] of a llama GGUF file, in double from its decoded weights: a naive
// forward that shares no code with nibble but the file reader and the format decoders.
std::vector<double> LlamaReferenceLogits(const std::filesystem::path& gguf,
                                         const std::vector<int>& ids);

}  // namespace nibble::testing
