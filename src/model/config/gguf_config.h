#pragma once

#include "base/result.h"
#include "container/gguf.h"
#include "model/config.h"
#include "model/config/architecture.h"

namespace nibble {

class GgufWriter;

// The configuration of a GGUF model: its metadata, and of its tensors only rope_freqs and
// rope_factors_*. Errors name the key. The result has passed ValidateConfig; tied_embeddings and
// parameters are still to be found from the tensors.
Result<ModelConfig> ReadGgufConfig(const GgufFile& file, const Architecture& architecture);

// The keys that ReadGgufConfig reads a config back from, without general.name; a config that they
// cannot describe comes back as another. The divisors of llama3 and longrope scaling are tensors,
// which the caller adds.
void WriteGgufConfig(const ModelConfig& config, GgufWriter& writer);

}  // namespace nibble
