#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "container/json.h"
#include "container/tensor_source.h"
#include "model/config/architecture.h"
#include "model/config/format_mix.h"

namespace nibble {

// Tensors of a model's shape with random weights, N(0, 0.02²) encoded into the mix's formats, under
// Hugging Face names. Tensors of one format share their bytes: the memory is that of the largest.
struct RandomTensors {
  TensorSource source;
  std::vector<std::string> names;             // what the source's names view
  std::vector<std::vector<std::byte>> bytes;  // by format
};
Result<RandomTensors> MakeRandomTensors(const ModelConfig& config, const TensorNaming& naming,
                                        const FormatMix& mix);

// config.json of a published shape ("tinyllama-1.1b", "llama-3.1-8b", …). Errors list the known
// names.
Result<std::string> ShapeByName(std::string_view name);
std::vector<std::string_view> ShapeNames();

}  // namespace nibble
