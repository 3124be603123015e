#include "model/config/random_model.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numbers>
#include <string>

#include "base/text.h"
#include "model/config/model_tensors.h"
#include "platform/cpu.h"

namespace nibble {
namespace {

// A published configuration: the config.json of the Hugging Face model named, keys that matter.
struct NamedShape {
  std::string_view name;
  std::string_view model_type;
  int width, ffn_width, layers, heads, kv_heads, head_dim;
  int vocabulary, context;
  int theta;
  bool tied;
  std::string_view more = {};  // further members, each behind a comma
};

constexpr std::string_view kLlama31Rope =
    R"(,"rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4,)"
    R"("original_max_position_embeddings":8192})";
constexpr std::string_view kLlama32Rope =
    R"(,"rope_scaling":{"rope_type":"llama3","factor":32,"low_freq_factor":1,"high_freq_factor":4,)"
    R"("original_max_position_embeddings":8192})";
constexpr std::string_view kGemma2 = R"(,"sliding_window":4096,"query_pre_attn_scalar":256)";
constexpr std::string_view kGemma2Wide = R"(,"sliding_window":4096,"query_pre_attn_scalar":144)";
constexpr std::string_view kGemma3 =
    R"(,"sliding_window":512,"_sliding_window_pattern":6,"query_pre_attn_scalar":256)";

// clang-format off
constexpr NamedShape kShapes[] = {
    {"smollm2-135m", "llama", 576, 1536, 30, 9, 3, 64, 49152, 8192, 100000, true},
    {"smollm2-360m", "llama", 960, 2560, 32, 15, 5, 64, 49152, 8192, 100000, true},
    {"smollm2-1.7b", "llama", 2048, 8192, 24, 32, 32, 64, 49152, 8192, 130000, true},
    {"smollm3-3b", "smollm3", 2048, 11008, 36, 16, 4, 128, 128256, 65536, 5000000, true},
    {"tinyllama-1.1b", "llama", 2048, 5632, 22, 32, 4, 64, 32000, 2048, 10000, false},
    {"gemma2-2b", "gemma2", 2304, 9216, 26, 8, 4, 256, 256000, 8192, 10000, true, kGemma2},
    {"gemma2-9b", "gemma2", 3584, 14336, 42, 16, 8, 256, 256000, 8192, 10000, true, kGemma2},
    {"gemma2-27b", "gemma2", 4608, 36864, 46, 32, 16, 128, 256000, 8192, 10000, true, kGemma2Wide},
    {"gemma3-270m", "gemma3_text", 640, 2048, 18, 4, 1, 256, 262144, 32768, 1000000, true, kGemma3},
    {"gemma3-1b", "gemma3_text", 1152, 6912, 26, 4, 1, 256, 262144, 32768, 1000000, true, kGemma3},
    {"qwen2.5-0.5b", "qwen2", 896, 4864, 24, 14, 2, 64, 151936, 32768, 1000000, true},
    {"qwen2.5-1.5b", "qwen2", 1536, 8960, 28, 12, 2, 128, 151936, 32768, 1000000, true},
    {"qwen2.5-3b", "qwen2", 2048, 11008, 36, 16, 2, 128, 151936, 32768, 1000000, true},
    {"qwen2.5-7b", "qwen2", 3584, 18944, 28, 28, 4, 128, 152064, 32768, 1000000, false},
    {"qwen2.5-14b", "qwen2", 5120, 13824, 48, 40, 8, 128, 152064, 32768, 1000000, false},
    {"qwen2.5-32b", "qwen2", 5120, 27648, 64, 40, 8, 128, 152064, 32768, 1000000, false},
    {"qwen2.5-72b", "qwen2", 8192, 29568, 80, 64, 8, 128, 152064, 32768, 1000000, false},
    {"qwen3-0.6b", "qwen3", 1024, 3072, 28, 16, 8, 128, 151936, 40960, 1000000, true},
    {"qwen3-1.7b", "qwen3", 2048, 6144, 28, 16, 8, 128, 151936, 40960, 1000000, true},
    {"qwen3-4b", "qwen3", 2560, 9728, 36, 32, 8, 128, 151936, 40960, 1000000, true},
    {"qwen3-8b", "qwen3", 4096, 12288, 36, 32, 8, 128, 151936, 40960, 1000000, false},
    {"qwen3-14b", "qwen3", 5120, 17408, 40, 40, 8, 128, 151936, 40960, 1000000, false},
    {"qwen3-32b", "qwen3", 5120, 25600, 64, 64, 8, 128, 151936, 40960, 1000000, false},
    {"llama-2-7b", "llama", 4096, 11008, 32, 32, 32, 128, 32000, 4096, 10000, false},
    {"llama-2-13b", "llama", 5120, 13824, 40, 40, 40, 128, 32000, 4096, 10000, false},
    {"llama-2-70b", "llama", 8192, 28672, 80, 64, 8, 128, 32000, 4096, 10000, false},
    {"llama-3-8b", "llama", 4096, 14336, 32, 32, 8, 128, 128256, 8192, 500000, false},
    {"llama-3-70b", "llama", 8192, 28672, 80, 64, 8, 128, 128256, 8192, 500000, false},
    {"llama-3.1-8b", "llama", 4096, 14336, 32, 32, 8, 128, 128256, 131072, 500000, false,
     kLlama31Rope},
    {"llama-3.1-70b", "llama", 8192, 28672, 80, 64, 8, 128, 128256, 131072, 500000, false,
     kLlama31Rope},
    {"llama-3.1-405b", "llama", 16384, 53248, 126, 128, 8, 128, 128256, 131072, 500000, false,
     kLlama31Rope},
    {"llama-3.2-1b", "llama", 2048, 8192, 16, 32, 8, 64, 128256, 131072, 500000, true,
     kLlama32Rope},
    {"llama-3.2-3b", "llama", 3072, 8192, 28, 24, 8, 128, 128256, 131072, 500000, true,
     kLlama32Rope},
    {"mistral-7b", "mistral", 4096, 14336, 32, 32, 8, 128, 32000, 32768, 10000, false},
    {"mistral-small-24b", "mistral", 5120, 32768, 40, 32, 8, 128, 131072, 32768, 100000000, false,
     R"(,"sliding_window":null)"},
    {"phi-3-mini", "phi3", 3072, 8192, 32, 32, 32, 96, 32064, 4096, 10000, false,
     R"(,"sliding_window":2047)"},
    {"phi-3-medium", "phi3", 5120, 17920, 40, 40, 10, 128, 32064, 4096, 10000, false,
     R"(,"sliding_window":2047)"},
};
// clang-format on

std::string ConfigJson(const NamedShape& s) {
  return fmt::format(
      R"({{"model_type":"{}","hidden_size":{},"intermediate_size":{},"num_hidden_layers":{},)"
      R"("num_attention_heads":{},"num_key_value_heads":{},"head_dim":{},"vocab_size":{},)"
      R"("max_position_embeddings":{},"rope_theta":{},"tie_word_embeddings":{}{}}})",
      s.model_type, s.width, s.ffn_width, s.layers, s.heads, s.kv_heads, s.head_dim, s.vocabulary,
      s.context, s.theta, s.tied, s.more);
}

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
    Add(name + ".weight", mix_.For(place), rows, place.cols);
  }
  // gpt2's linears are stored transposed, which block formats cannot be; they stay floats. Its
  // embedding is not.
  void LinearMatrix(const std::string& name, const TensorPlace& place, int rows) {
    if (!naming_.transposed) return Matrix(name, place, rows);
    Add(name + ".weight", Format::kF32, place.cols, rows);
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
      LinearMatrix(prefix + std::string(naming_.linears[i]), place, total);
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
    size_t total = 0;
    for (const auto& [format, size] : largest) total += size;
    const size_t available = ReadTopology().memory_available;
    if (total > available) {
      return Fail(ErrorKind::kNoRoom,
                  "random weights need {} (the largest matrix of each format), and {} are free",
                  FormatBytes(static_cast<double>(total)),
                  FormatBytes(static_cast<double>(available)));
    }
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

std::vector<std::string_view> ShapeNames() {
  std::vector<std::string_view> names;
  for (const NamedShape& shape : kShapes) names.push_back(shape.name);
  return names;
}

Result<std::string> ShapeByName(std::string_view name) {
  const auto* const shape = std::ranges::find(kShapes, name, &NamedShape::name);
  if (shape != std::end(kShapes)) return ConfigJson(*shape);
  return BadInput("no shape named '{}'; known: {}; or give a config.json", name,
                  fmt::join(ShapeNames(), ", "));
}

}  // namespace nibble
