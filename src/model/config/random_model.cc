#include "model/config/random_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <numbers>
#include <string>

#include "model/config/model_tensors.h"

namespace nibble {
namespace {

struct NamedShape {
  std::string_view name;
  std::string_view config;
};

// Published configurations (Hugging Face config.json of the models named), keys that matter.
constexpr std::array kShapes = {
    NamedShape{"smollm2-135m",
               R"({"model_type":"llama","hidden_size":576,"intermediate_size":1536,
                   "num_hidden_layers":30,"num_attention_heads":9,"num_key_value_heads":3,
                   "vocab_size":49152,"max_position_embeddings":8192,"rope_theta":100000,
                   "tie_word_embeddings":true})"},
    NamedShape{"smollm2-1.7b",
               R"({"model_type":"llama","hidden_size":2048,"intermediate_size":8192,
                   "num_hidden_layers":24,"num_attention_heads":32,"num_key_value_heads":32,
                   "vocab_size":49152,"max_position_embeddings":8192,"rope_theta":130000,
                   "tie_word_embeddings":true})"},
    NamedShape{"tinyllama-1.1b",
               R"({"model_type":"llama","hidden_size":2048,"intermediate_size":5632,
                   "num_hidden_layers":22,"num_attention_heads":32,"num_key_value_heads":4,
                   "vocab_size":32000,"max_position_embeddings":2048,"rope_theta":10000,
                   "tie_word_embeddings":false})"},
    NamedShape{"qwen2.5-0.5b",
               R"({"model_type":"qwen2","hidden_size":896,"intermediate_size":4864,
                   "num_hidden_layers":24,"num_attention_heads":14,"num_key_value_heads":2,
                   "vocab_size":151936,"max_position_embeddings":32768,"rope_theta":1000000,
                   "tie_word_embeddings":true})"},
    NamedShape{"qwen3-0.6b",
               R"({"model_type":"qwen3","hidden_size":1024,"intermediate_size":3072,"head_dim":128,
                   "num_hidden_layers":28,"num_attention_heads":16,"num_key_value_heads":8,
                   "vocab_size":151936,"max_position_embeddings":40960,"rope_theta":1000000,
                   "tie_word_embeddings":true})"},
    NamedShape{"llama-2-7b",
               R"({"model_type":"llama","hidden_size":4096,"intermediate_size":11008,
                   "num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":32,
                   "vocab_size":32000,"max_position_embeddings":4096,"rope_theta":10000,
                   "tie_word_embeddings":false})"},
    NamedShape{"llama-3-8b",
               R"({"model_type":"llama","hidden_size":4096,"intermediate_size":14336,
                   "num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,
                   "vocab_size":128256,"max_position_embeddings":8192,"rope_theta":500000,
                   "tie_word_embeddings":false})"},
};

// Enough different blocks that no predictor or cache sees a pattern; repeated to the size needed.
constexpr size_t kPatternElements = size_t{1} << 16;

// N(0, 0.02²) by Box-Muller from a fixed linear congruential sequence.
std::vector<float> RandomWeights() {
  uint64_t state = 88172645463325252ULL;
  const auto uniform = [&] {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (static_cast<double>(state >> 11) + 0.5) * 0x1p-53;
  };
  std::vector<float> values(kPatternElements);
  for (float& value : values) {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    value = static_cast<float>(0.02 * radius * std::cos(2 * std::numbers::pi * uniform()));
  }
  return values;
}

class Builder {
 public:
  Builder(const ModelConfig& config, const TensorNaming& naming, const FormatMix& mix)
      : config_(config), naming_(naming), mix_(mix) {}

  Result<RandomTensors> Build() {
    const int width = config_.width;
    const TensorRole role = config_.tied_embeddings ? TensorRole::kOutput : TensorRole::kEmbedding;
    Matrix(std::string(naming_.embedding), {role, 0, 1, 1, width}, config_.vocabulary);
    if (config_.learned_positions) {
      Add(std::string(naming_.positions) + ".weight", Format::kF32, config_.context_length, width);
    }
    for (int layer = 0; layer < std::ssize(config_.layers); ++layer) Layer(layer);
    AddNorm(std::string(naming_.output_norm), width);
    if (!config_.tied_embeddings) {
      Matrix(std::string(naming_.output), {TensorRole::kOutput, 0, 1, 1, width},
             config_.vocabulary);
    }
    return Finish();
  }

 private:
  struct Planned {
    std::string name;
    Format format;
    int rows;  // 0: a vector
    int cols;
    size_t bytes() const {
      return static_cast<size_t>(std::max(1, rows)) *
             TraitsOf(format).RowBytes(static_cast<size_t>(cols));
    }
  };

  void Add(std::string name, Format format, int rows, int cols) {
    planned_.push_back({std::move(name), format, rows, cols});
  }
  void Matrix(const std::string& name, const TensorPlace& place, int rows) {
    // gpt2's transposed tensors have no block formats; they stay floats.
    if (naming_.transposed) return Add(name + ".weight", Format::kF32, place.cols, rows);
    Add(name + ".weight", mix_.For(place), rows, place.cols);
  }
  void AddNorm(const std::string& name, int size) {
    Add(name + ".weight", Format::kF32, 0, size);
    if (config_.norm == NormKind::kLayer) Add(name + ".bias", Format::kF32, 0, size);
  }

  void Layer(int layer) {
    const std::string prefix = std::string(naming_.layers) + std::to_string(layer) + ".";
    const auto shape = [&](size_t i) { return LinearShape(config_, static_cast<Linear>(i)); };
    // Linears stored as one tensor are made as one, of the first one's role.
    for (size_t i = 0; i < kLinears;) {
      if (naming_.linears[i].empty()) {
        ++i;
        continue;
      }
      size_t last = i;
      int total = shape(i).rows;
      while (last + 1 < kLinears && naming_.linears[last + 1] == naming_.linears[i]) {
        total += shape(++last).rows;
      }
      const auto role = static_cast<TensorRole>(static_cast<size_t>(TensorRole::kAttnQuery) + i);
      const TensorPlace place{role, layer, static_cast<int>(config_.layers.size()),
                              config_.heads / config_.kv_heads, shape(i).cols};
      Matrix(prefix + std::string(naming_.linears[i]), place, total);
      i = last + 1;
    }
    for (size_t i = 0; i < kNorms; ++i) {
      const bool head =
          i == static_cast<size_t>(Norm::kQuery) || i == static_cast<size_t>(Norm::kKey);
      if (naming_.norms[i].empty()) continue;
      AddNorm(prefix + std::string(naming_.norms[i]), head ? config_.head_dim : config_.width);
    }
  }

  // One buffer per format, as long as its largest tensor.
  Result<RandomTensors> Finish() {
    std::map<Format, size_t> largest;
    for (const Planned& p : planned_) largest[p.format] = std::max(largest[p.format], p.bytes());
    RandomTensors out;
    out.bytes.resize(kFormatCount);
    const std::vector<float> values = RandomWeights();
    for (const auto& [format, size] : largest) {
      const FormatTraits& traits = TraitsOf(format);
      std::vector<std::byte> pattern(traits.RowBytes(kPatternElements));
      traits.encode(values.data(), pattern.data(), kPatternElements);
      std::vector<std::byte>& bytes = out.bytes[static_cast<size_t>(format)];
      bytes.resize(size);
      for (size_t at = 0; at < size; at += pattern.size()) {
        std::memcpy(bytes.data() + at, pattern.data(), std::min(pattern.size(), size - at));
      }
    }
    std::vector<SourceTensor> tensors;
    out.names.reserve(planned_.size());
    for (const Planned& p : planned_) {
      SourceTensor tensor;
      tensor.name = out.names.emplace_back(p.name);
      tensor.format = p.format;
      tensor.type_name = TraitsOf(p.format).name;
      tensor.rank = p.rows == 0 ? 1 : 2;
      if (p.rows != 0) tensor.shape[0] = static_cast<uint64_t>(p.rows);
      tensor.shape[static_cast<size_t>(tensor.rank - 1)] = static_cast<uint64_t>(p.cols);
      tensor.bytes =
          std::span<const std::byte>(out.bytes[static_cast<size_t>(p.format)]).first(p.bytes());
      tensors.push_back(tensor);
    }
    NIBBLE_TRY(out.source, TensorSource::Build(std::move(tensors)));
    return out;
  }

  const ModelConfig& config_;
  const TensorNaming& naming_;
  const FormatMix& mix_;
  std::vector<Planned> planned_;
};

}  // namespace

Result<RandomTensors> MakeRandomTensors(const ModelConfig& config, const TensorNaming& naming,
                                        const FormatMix& mix) {
  return Builder(config, naming, mix).Build();
}

Result<std::string_view> ShapeByName(std::string_view name) {
  std::string known;
  for (const NamedShape& shape : kShapes) {
    if (shape.name == name) return shape.config;
    known += (known.empty() ? "" : ", ") + std::string(shape.name);
  }
  return BadInput("no shape named '{}'; known: {}; or give a config.json", name, known);
}

}  // namespace nibble
