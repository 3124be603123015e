#include "cost/model_shape.h"

#include <algorithm>
#include <array>

#include "container/hf_linear.h"
#include "cost/model_spec.h"
#include "cost/nearest.h"
#include "model/config/hf_config.h"
#include "model/config/model_file.h"
#include "model/config/random_model.h"

namespace nibble {
namespace {

// Shapes that nibble does not run but can price: generic sizes, mixtures of experts. Keys as in
// config.json of the Hugging Face models of that name.
struct PricedShape {
  std::string_view name;
  std::string_view json;
};
constexpr PricedShape kPriced[] = {
    // Llama 2's attention with a round number of weights.
    {"13b", R"({"parameters":13e9,"hidden_size":5120,"num_hidden_layers":40,
      "num_attention_heads":40,"max_position_embeddings":4096})"},
    {"70b", R"({"parameters":70e9,"hidden_size":8192,"num_hidden_layers":80,
      "num_attention_heads":64,"num_key_value_heads":8,"max_position_embeddings":4096})"},
    {"mixtral-8x7b", R"({"model_type":"mixtral","hidden_size":4096,"intermediate_size":14336,
      "num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"vocab_size":32000,
      "max_position_embeddings":32768,"num_local_experts":8,"num_experts_per_tok":2})"},
    {"mixtral-8x22b", R"({"model_type":"mixtral","hidden_size":6144,"intermediate_size":16384,
      "num_hidden_layers":56,"num_attention_heads":48,"num_key_value_heads":8,"vocab_size":32768,
      "max_position_embeddings":65536,"num_local_experts":8,"num_experts_per_tok":2})"},
    {"qwen3-30b-a3b", R"({"model_type":"qwen3_moe","hidden_size":2048,"intermediate_size":6144,
      "num_hidden_layers":48,"num_attention_heads":32,"num_key_value_heads":4,"head_dim":128,
      "vocab_size":151936,"max_position_embeddings":40960,"num_experts":128,
      "num_experts_per_tok":8,"moe_intermediate_size":768})"},
    {"deepseek-v2-lite", R"({"model_type":"deepseek_v2","hidden_size":2048,
      "intermediate_size":10944,"num_hidden_layers":27,"num_attention_heads":16,
      "vocab_size":102400,"max_position_embeddings":163840,"n_routed_experts":64,
      "num_experts_per_tok":6,"moe_intermediate_size":1408,"n_shared_experts":2,
      "first_k_dense_replace":1,"kv_lora_rank":512,"q_lora_rank":null,"qk_rope_head_dim":64,
      "qk_nope_head_dim":128,"v_head_dim":128})"},
    {"deepseek-v2", R"({"model_type":"deepseek_v2","hidden_size":5120,"intermediate_size":12288,
      "num_hidden_layers":60,"num_attention_heads":128,"vocab_size":102400,
      "max_position_embeddings":163840,"n_routed_experts":160,"num_experts_per_tok":6,
      "moe_intermediate_size":1536,"n_shared_experts":2,"first_k_dense_replace":1,
      "kv_lora_rank":512,"q_lora_rank":1536,"qk_rope_head_dim":64,"qk_nope_head_dim":128,
      "v_head_dim":128})"},
    {"gpt-oss-20b", R"({"model_type":"gpt_oss","hidden_size":2880,"intermediate_size":2880,
      "num_hidden_layers":24,"num_attention_heads":64,"num_key_value_heads":8,"head_dim":64,
      "vocab_size":201088,"max_position_embeddings":131072,"num_local_experts":32,
      "num_experts_per_tok":4,"sliding_window":128,"sliding_window_every":2})"},
    {"gpt-oss-120b", R"({"model_type":"gpt_oss","hidden_size":2880,"intermediate_size":2880,
      "num_hidden_layers":36,"num_attention_heads":64,"num_key_value_heads":8,"head_dim":64,
      "vocab_size":201088,"max_position_embeddings":131072,"num_local_experts":128,
      "num_experts_per_tok":4,"sliding_window":128,"sliding_window_every":2})"},
};

Flops PlainAttention(const ModelConfig& config) {
  return Flops(4.0 * config.heads * config.head_dim);  // q·k and p·v, two operations each
}

bool HasAny(JsonValue root, std::initializer_list<std::string_view> keys) {
  return std::ranges::any_of(keys, [&](std::string_view key) {
    const auto value = root.Find(key);
    return value && !value->is_null();
  });
}

// Values of the norms and biases of one layer of an architecture that nibble runs.
double VectorsOfLayer(const ModelConfig& config, const Architecture& architecture) {
  double values = 0;
  const double norm_parts = config.norm == NormKind::kLayer ? 2 : 1;  // gain, shift
  for (size_t i = 0; i < kNorms; ++i) {
    const bool head =
        i == static_cast<size_t>(Norm::kQuery) || i == static_cast<size_t>(Norm::kKey);
    if (architecture.hf.norms[i].empty()) continue;
    values += norm_parts * (head ? config.head_dim : config.width);
  }
  const bool all = architecture.name == "gpt2";
  const size_t biased = all ? kLinears : architecture.name == "qwen2" ? size_t{3} : 0;
  for (size_t i = 0; i < biased; ++i) {
    if (architecture.hf.linears[i].empty()) continue;
    values += LinearShape(config, static_cast<Linear>(i)).rows;
  }
  return values;
}

ModelShape ShapeOfConfig(const ModelConfig& config, const Architecture& architecture,
                         std::string name) {
  ModelShape shape{.name = std::move(name), .config = config};
  const int layers = static_cast<int>(config.layers.size());
  for (int layer = 0; layer < layers; ++layer) {
    for (size_t i = 0; i < kLinears; ++i) {
      if (architecture.hf.linears[i].empty()) continue;
      const MatrixShape matrix = LinearShape(config, static_cast<Linear>(i));
      shape.groups.push_back({.place = {RoleOf(static_cast<Linear>(i)), layer, layers,
                                        config.heads / config.kv_heads, matrix.cols},
                              .weights = static_cast<double>(matrix.rows) * matrix.cols});
    }
  }
  const double norm_parts = config.norm == NormKind::kLayer ? 2 : 1;
  double vectors = layers * VectorsOfLayer(config, architecture) + norm_parts * config.width;
  if (config.learned_positions)
    vectors += static_cast<double>(config.context_length) * config.width;
  AddTables(config, shape);
  shape.groups.push_back({.use = WeightUse::kVector, .weights = vectors});
  shape.attention_per_key = PlainAttention(config);
  return shape;
}

Bytes StoredBytes(const MatrixRef& matrix) {
  const SourceTensor& tensor = *matrix.tensor;
  const double weights = static_cast<double>(matrix.rows) * matrix.cols;
  if (tensor.linear != nullptr) {
    return Bytes(static_cast<double>(tensor.StoredBytes()) * weights /
                 static_cast<double>(tensor.elements()));
  }
  return Bytes(weights * TraitsOf(*tensor.format).BitsPerWeight() / 8);
}

void AddFileMatrix(const MatrixRef& matrix, WeightUse use, const TensorPlace& place,
                   ModelShape& shape) {
  if (!matrix) return;
  const SourceTensor& tensor = *matrix.tensor;
  if (tensor.linear != nullptr || TraitsOf(*tensor.format).activation_group > 0) {
    shape.integer_file = true;
  }
  shape.groups.push_back(
      {.use = use,
       .place = place,
       .weights = static_cast<double>(matrix.rows) * matrix.cols,
       .own = StoredBytes(matrix),
       .own_format = tensor.linear != nullptr ? tensor.linear->format : *tensor.format});
}

void AddFileVector(const VectorRef& vector, WeightGroup& sum) {
  if (!vector) return;
  sum.weights += vector.size;
  // Held as floats, whatever the file has.
  sum.own += Bytes(static_cast<double>(sizeof(float)) * vector.size);
}

}  // namespace

double ModelShape::Weights(WeightUse use) const {
  double sum = 0;
  for (const WeightGroup& group : groups) sum += group.use == use ? group.weights : 0;
  return sum;
}

double ModelShape::TotalWeights() const {
  double sum = 0;
  for (const WeightGroup& group : groups) sum += group.weights;
  return sum;
}

TensorRole RoleOf(Linear linear) {
  return static_cast<TensorRole>(static_cast<size_t>(TensorRole::kAttnQuery) +
                                 static_cast<size_t>(linear));
}

void AddTables(const ModelConfig& config, ModelShape& shape) {
  const double table = static_cast<double>(config.vocabulary) * config.width;
  const auto add = [&](WeightUse use, TensorRole role) {
    shape.groups.push_back(
        {.use = use,
         .place = {role, 0, static_cast<int>(config.layers.size()), 1, config.width},
         .weights = table});
  };
  if (!config.tied_embeddings) add(WeightUse::kLookup, TensorRole::kEmbedding);
  add(WeightUse::kEveryStep, TensorRole::kOutput);
}

std::vector<std::string_view> ModelShapeNames() {
  std::vector<std::string_view> names = ShapeNames();
  for (const PricedShape& shape : kPriced) names.push_back(shape.name);
  return names;
}

Result<ModelShape> ModelShapeByName(std::string_view name) {
  std::string json;
  const std::vector<std::string_view> runnable = ShapeNames();
  if (std::ranges::find(runnable, name) != runnable.end()) {
    NIBBLE_TRY(json, ShapeByName(name));
  } else {
    const auto* const priced = std::ranges::find(kPriced, name, &PricedShape::name);
    if (priced == std::end(kPriced)) {
      return BadInput("there is no model '{}'; the nearest names are {}", name.substr(0, 64),
                      NearestNames(name, ModelShapeNames()));
    }
    json = priced->json;
  }
  NIBBLE_TRY(const JsonDocument document, JsonDocument::Parse(std::move(json)));
  return ReadModelShape(document.root(), std::string(name));
}

Result<ModelShape> ReadModelShape(JsonValue root, std::string name) {
  if (!root.is_object()) {
    return BadInput("expected an object, found {}", JsonKindName(root.kind()));
  }
  const bool priced_only = HasAny(
      root, {"parameters", "num_local_experts", "n_routed_experts", "num_experts", "kv_lora_rank"});
  const auto type = root.GetStringOr("model_type", "");
  if (!type) return std::unexpected(type.error());
  if (!priced_only && !type->empty() && FindHfModelType(*type)) {
    NIBBLE_TRY(const HfConfig hf, ReadHfConfig(root));
    return ShapeOfConfig(hf.config, *hf.architecture, std::move(name));
  }
  NIBBLE_TRY(ModelShape shape, ReadModelSpec(root));
  shape.name = std::move(name);
  return shape;
}

ModelShape ShapeOfFile(const ModelFile& file, std::string name) {
  const ModelConfig& config = file.config();
  const ModelTensors& tensors = file.tensors();
  ModelShape shape{.name = std::move(name), .config = config, .has_file = true};
  WeightGroup vectors{.use = WeightUse::kVector};
  const int layers = static_cast<int>(tensors.layers.size());
  for (int layer = 0; layer < layers; ++layer) {
    const LayerTensors& own = tensors.layers[static_cast<size_t>(layer)];
    for (size_t i = 0; i < kLinears; ++i) {
      const LinearRef& linear = own.linears[i];
      const TensorPlace place{RoleOf(static_cast<Linear>(i)), layer, layers,
                              config.heads / config.kv_heads, linear.weight.cols};
      AddFileMatrix(linear.weight, WeightUse::kEveryStep, place, shape);
      AddFileVector(linear.bias, vectors);
    }
    for (const NormRef& norm : own.norms) {
      AddFileVector(norm.weight, vectors);
      AddFileVector(norm.bias, vectors);
    }
  }
  AddFileVector(tensors.output_norm.weight, vectors);
  AddFileVector(tensors.output_norm.bias, vectors);
  const TensorPlace output{TensorRole::kOutput, 0, layers, 1, config.width};
  if (tensors.output.weight) {
    const TensorPlace embedding{TensorRole::kEmbedding, 0, layers, 1, config.width};
    AddFileMatrix(tensors.embedding, WeightUse::kLookup, embedding, shape);
    AddFileMatrix(tensors.output.weight, WeightUse::kEveryStep, output, shape);
  } else {
    AddFileMatrix(tensors.embedding, WeightUse::kEveryStep, output, shape);
  }
  AddFileMatrix(tensors.positions, WeightUse::kVector, output, shape);
  shape.groups.push_back(vectors);
  shape.attention_per_key = PlainAttention(config);
  return shape;
}

}  // namespace nibble
