#include "cost/model_spec.h"

#include <algorithm>
#include <initializer_list>

#include "model/config/validate.h"

namespace nibble {
namespace {

struct Experts {
  int count = 0;  // 0: a dense model
  int per_token = 0;
  int ffn_width = 0;
  int shared = 0;        // computed for every token
  int dense_layers = 0;  // the first ones have no experts
};

// DeepSeek-V2 (arXiv 2405.04434 §2.1): keys and values are projections of one cached latent.
struct Latent {
  int kv_rank = 0;  // 0: plain attention
  int q_rank = 0;   // 0: queries straight from the width
  int rope = 0;
  int nope = 0;
  int value = 0;
  int cached() const { return kv_rank + rope; }  // values per token and layer
};

class SpecReader {
 public:
  explicit SpecReader(JsonValue root) : root_(root) {}
  Result<ModelShape> Read();

 private:
  Result<int> Int(std::string_view key, int least, int most, std::optional<int> fallback = {});
  Status ReadSizes();
  Status ReadWindows();
  Status ReadExperts();
  Status ReadLatent();
  Status ReadParameters();
  void AddLayers();
  void AddAttention(int layer);
  void AddFeedForward(int layer);
  void Matrix(WeightUse use, TensorRole role, int layer, double rows, int cols) {
    const ModelConfig& config = shape_.config;
    shape_.groups.push_back({.use = use,
                             .place = {role, layer, static_cast<int>(config.layers.size()),
                                       std::max(1, config.heads / config.kv_heads), cols},
                             .weights = rows * cols});
  }

  JsonValue root_;
  ModelShape shape_;
  Experts experts_;
  Latent latent_;
  std::string_view type_;
  double parameters_ = 0;  // 0: counted from the sizes
  double vectors_ = 0;
};

Result<int> SpecReader::Int(std::string_view key, int least, int most,
                            std::optional<int> fallback) {
  const auto value = root_.Find(key);
  if (!value || value->is_null()) {
    if (fallback) return *fallback;
    return BadInput("'{}' is missing: expected a whole number from {} to {}", key, least, most);
  }
  const auto number = value->AsInt();
  if (!number) return Within(fmt::format("'{}'", key), number.error());
  if (*number >= least && *number <= most) return static_cast<int>(*number);
  return BadInput("'{}': expected a whole number from {} to {}, found {}", key, least, most,
                  *number);
}

Status SpecReader::ReadSizes() {
  using Limits = ConfigLimits;
  ModelConfig& config = shape_.config;
  NIBBLE_TRY(type_, root_.GetStringOr("model_type", ""));
  config.architecture = type_;
  NIBBLE_TRY(config.width, Int("hidden_size", 1, Limits::kWidth));
  NIBBLE_TRY(const int layers, Int("num_hidden_layers", 1, Limits::kLayers));
  config.layers.resize(static_cast<size_t>(layers));
  NIBBLE_TRY(config.heads, Int("num_attention_heads", 1, Limits::kHeads));
  NIBBLE_TRY(config.kv_heads, Int("num_key_value_heads", 1, config.heads, config.heads));
  NIBBLE_TRY(config.head_dim, Int("head_dim", 1, Limits::kHeadDim,
                                  std::clamp(config.width / config.heads, 1, Limits::kHeadDim)));
  NIBBLE_TRY(config.context_length,
             Int("max_position_embeddings", 1, Limits::kContext, Limits::kContext));
  NIBBLE_TRY(config.tied_embeddings, root_.GetBoolOr("tie_word_embeddings", false));
  return {};
}

// Layers that see `sliding_window` positions: those that layer_types says; else all but every
// sliding_window_every-th one; else all.
Status SpecReader::ReadWindows() {
  NIBBLE_TRY(const int window, Int("sliding_window", 1, ConfigLimits::kContext, 0));
  NIBBLE_TRY(const int every, Int("sliding_window_every", 1, ConfigLimits::kLayers, 0));
  std::vector<LayerConfig>& layers = shape_.config.layers;
  const auto types = root_.Find("layer_types");
  if (types && !types->is_null()) {
    const auto list = types->AsArray();
    if (!list) return Within("'layer_types'", list.error());
    if (list->size() != layers.size()) {
      return BadInput("'layer_types': expected {} entries, one per layer, found {}", layers.size(),
                      list->size());
    }
    auto layer = layers.begin();
    for (const JsonValue one : *list) {
      const auto name = one.AsString();
      if (!name) return Within("'layer_types'", name.error());
      layer++->window = *name == "sliding_attention" ? window : 0;
    }
    return {};
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    const bool global = every > 0 && (i + 1) % static_cast<size_t>(every) == 0;
    layers[i].window = global ? 0 : window;
  }
  return {};
}

Status SpecReader::ReadExperts() {
  constexpr int kMost = 1 << 16;
  for (const std::string_view key : {"num_local_experts", "n_routed_experts", "num_experts"}) {
    NIBBLE_TRY(const int count, Int(key, 0, kMost, 0));
    experts_.count = std::max(experts_.count, count);
  }
  if (experts_.count == 0) return {};
  NIBBLE_TRY(experts_.per_token, Int("num_experts_per_tok", 1, experts_.count));
  NIBBLE_TRY(experts_.ffn_width,
             Int("moe_intermediate_size", 1, ConfigLimits::kFfnWidth, shape_.config.ffn_width));
  NIBBLE_TRY(experts_.shared, Int("n_shared_experts", 0, 1024, 0));
  NIBBLE_TRY(experts_.dense_layers,
             Int("first_k_dense_replace", 0, static_cast<int>(shape_.config.layers.size()), 0));
  shape_.experts = experts_.count;
  shape_.experts_per_token = experts_.per_token;
  return {};
}

Status SpecReader::ReadLatent() {
  constexpr int kMost = ConfigLimits::kHeadDim;
  NIBBLE_TRY(latent_.kv_rank, Int("kv_lora_rank", 1, kMost, 0));
  if (latent_.kv_rank == 0) return {};
  NIBBLE_TRY(latent_.q_rank, Int("q_lora_rank", 1, ConfigLimits::kWidth, 0));
  NIBBLE_TRY(latent_.rope, Int("qk_rope_head_dim", 1, kMost));
  NIBBLE_TRY(latent_.nope, Int("qk_nope_head_dim", 1, kMost));
  NIBBLE_TRY(latent_.value, Int("v_head_dim", 1, kMost));
  if (latent_.cached() % 8 != 0) {
    return BadInput("'kv_lora_rank': with qk_rope_head_dim it is {}, expected a multiple of 8",
                    latent_.cached());
  }
  return {};
}

Status SpecReader::ReadParameters() {
  const auto given = root_.Find("parameters");
  if (given && !given->is_null()) {
    const auto number = given->AsDouble();
    if (!number) return Within("'parameters'", number.error());
    if (!(*number >= 1 && *number <= 1e15)) {
      return BadInput("'parameters': expected a number from 1 to 1e15, found {}", *number);
    }
    parameters_ = *number;
    return {};
  }
  NIBBLE_TRY(shape_.config.vocabulary, Int("vocab_size", 1, ConfigLimits::kVocabulary));
  NIBBLE_TRY(shape_.config.ffn_width, Int("intermediate_size", 1, ConfigLimits::kFfnWidth));
  return {};
}

void SpecReader::AddAttention(int layer) {
  const ModelConfig& config = shape_.config;
  const WeightUse every = WeightUse::kEveryStep;
  const double heads = config.heads;
  if (latent_.kv_rank == 0) {
    for (const Linear linear : {Linear::kQuery, Linear::kKey, Linear::kValue, Linear::kOutput}) {
      const MatrixShape matrix = LinearShape(config, linear);
      Matrix(every, RoleOf(linear), layer, matrix.rows, matrix.cols);
      if (type_ == "gpt_oss") vectors_ += matrix.rows;
    }
    return;
  }
  const int query_from = latent_.q_rank > 0 ? latent_.q_rank : config.width;
  if (latent_.q_rank > 0) {
    Matrix(every, TensorRole::kAttnQuery, layer, latent_.q_rank, config.width);
  }
  Matrix(every, TensorRole::kAttnQuery, layer, heads * (latent_.nope + latent_.rope), query_from);
  Matrix(every, TensorRole::kAttnKey, layer, latent_.cached(), config.width);
  Matrix(every, TensorRole::kAttnValue, layer, heads * (latent_.nope + latent_.value),
         latent_.kv_rank);
  Matrix(every, TensorRole::kAttnOutput, layer, config.width,
         static_cast<int>(heads) * latent_.value);
  vectors_ += latent_.kv_rank + latent_.q_rank;  // norms
}

void SpecReader::AddFeedForward(int layer) {
  const int width = shape_.config.width;
  const auto gated = [&](WeightUse use, double copies, int inner) {
    Matrix(use, TensorRole::kFfnGate, layer, copies * inner, width);
    Matrix(use, TensorRole::kFfnUp, layer, copies * inner, width);
    Matrix(use, TensorRole::kFfnDown, layer, copies * width, inner);
  };
  if (experts_.count == 0 || layer < experts_.dense_layers) {
    return gated(WeightUse::kEveryStep, 1, shape_.config.ffn_width);
  }
  Matrix(WeightUse::kEveryStep, TensorRole::kFfnGate, layer, experts_.count, width);  // the router
  gated(WeightUse::kExpert, experts_.count, experts_.ffn_width);
  if (experts_.shared > 0) gated(WeightUse::kEveryStep, experts_.shared, experts_.ffn_width);
  if (type_ == "gpt_oss") {
    const double each = 2.0 * experts_.ffn_width + width + 1;  // the router's, too
    vectors_ += experts_.count * each;
  }
}

void SpecReader::AddLayers() {
  const ModelConfig& config = shape_.config;
  for (int layer = 0; layer < std::ssize(config.layers); ++layer) {
    AddAttention(layer);
    AddFeedForward(layer);
    vectors_ += 2.0 * config.width;
    if (type_ == "qwen3_moe") vectors_ += 2.0 * config.head_dim;
    if (type_ == "gpt_oss") vectors_ += config.heads;  // attention sinks
  }
  vectors_ += config.width;
}

Result<ModelShape> SpecReader::Read() {
  NIBBLE_RETURN_IF_ERROR(ReadSizes());
  NIBBLE_RETURN_IF_ERROR(ReadParameters());
  NIBBLE_RETURN_IF_ERROR(ReadWindows());
  NIBBLE_RETURN_IF_ERROR(ReadExperts());
  NIBBLE_RETURN_IF_ERROR(ReadLatent());
  ModelConfig& config = shape_.config;
  if (parameters_ > 0) {
    if (experts_.count > 0) {
      return BadInput("'parameters': a model with experts is counted from its sizes; leave it out");
    }
    shape_.groups.push_back({.place = {.cols = config.width}, .weights = parameters_});
  } else {
    AddLayers();
    AddTables(config, shape_);
    shape_.groups.push_back({.use = WeightUse::kVector, .weights = vectors_});
  }
  shape_.attention_per_key = Flops(4.0 * config.heads * config.head_dim);
  if (latent_.kv_rank > 0) {
    // Queries multiply the latent itself (the projections are absorbed into their matrices).
    shape_.attention_per_key = Flops(2.0 * config.heads * (2.0 * latent_.kv_rank + latent_.rope));
    config.kv_heads = 1;
    config.head_dim = latent_.cached() / 2;
  }
  return std::move(shape_);
}

}  // namespace

Result<ModelShape> ReadModelSpec(JsonValue root) { return SpecReader(root).Read(); }

}  // namespace nibble
