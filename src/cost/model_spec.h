#pragma once

#include "cost/model_shape.h"
#include "model/config/model_tensors.h"

namespace nibble {

// A shape from config.json's keys alone, for models that nibble does not run: mixtures of experts,
// latent attention, a bare number of "parameters". No name. Errors name the key.
Result<ModelShape> ReadModelSpec(JsonValue root);

TensorRole RoleOf(Linear linear);
// The embedding and the output matrix, one where they are tied.
void AddTables(const ModelConfig& config, ModelShape& shape);

}  // namespace nibble
