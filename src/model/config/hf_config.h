#pragma once

#include <optional>

#include "base/result.h"
#include "container/json.h"
#include "model/config.h"
#include "model/config/architecture.h"
#include "model/config/hf_quantization.h"

namespace nibble {

// A config.json of Hugging Face transformers, 4.x (rope_theta, rope_scaling) or 5.x
// (rope_parameters). Keys that are absent have the values that transformers gives them. Errors name
// the key. The result has passed ValidateConfig; parameters are still to be counted, and
// tied_embeddings holds what the config says.
struct HfConfig {
  ModelConfig config;
  const Architecture* architecture = nullptr;
  bool tie_given = false;  // tie_word_embeddings is in the file
  std::optional<HfQuantization> quantization = {};
};
Result<HfConfig> ReadHfConfig(JsonValue root);

}  // namespace nibble
