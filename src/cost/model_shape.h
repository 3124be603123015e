#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "container/json.h"
#include "cost/units.h"
#include "model/config.h"
#include "model/config/format_mix.h"

namespace nibble {

class ModelFile;

// How a decode step uses weights.
enum class WeightUse : uint8_t {
  kEveryStep,  // P_m: multiplied by every row, read once a step
  kExpert,     // of the experts that some row chooses
  kLookup,     // the input embedding: one row of it per sequence
  kVector,     // norms, biases, learned positions: in memory, too few to count in a step
};

// All matrices of one role in one layer.
struct WeightGroup {
  WeightUse use = WeightUse::kEveryStep;
  TensorPlace place = {};
  double weights = 0;
  Bytes own = {};                         // as the model's file stores them; 0: there is no file
  std::optional<Format> own_format = {};  // that they are multiplied in; none: there is no file
};

// What the cost model needs to know of a model.
struct ModelShape {
  std::string name;
  // Width, heads, layers with their windows, context. With latent attention (DeepSeek-V2) kv_heads
  // is 1 and head_dim half of the cached latent, so that keys and values together have its size.
  ModelConfig config;
  std::vector<WeightGroup> groups = {};
  int experts = 0;  // of a layer; 0: a dense model
  int experts_per_token = 0;
  // Multiplications and additions of one query and one visible position in one layer.
  Flops attention_per_key = {};
  bool has_file = false;      // WeightGroup::own is filled
  bool integer_file = false;  // of weights that have integer products

  double Weights(WeightUse use) const;
  double TotalWeights() const;
};

// A name of the table (SHAPES of bench --random, mixtures of experts, "13b" and "70b").
// Errors offer the nearest names.
Result<ModelShape> ModelShapeByName(std::string_view name);
std::vector<std::string_view> ModelShapeNames();

// A config.json, or a SPEC.json with the same keys (docs/plan.md); "parameters" counts weights that
// no other key explains. Errors name the key.
Result<ModelShape> ReadModelShape(JsonValue root, std::string name);

// A model on disk, with the bytes of its own formats.
ModelShape ShapeOfFile(const ModelFile& file, std::string name);

}  // namespace nibble
