#include "model/config/model_file.h"

#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "container/gguf.h"
#include "container/json.h"
#include "container/safetensors.h"
#include "model/config/gguf_config.h"
#include "model/config/hf_config.h"
#include "model/config/random_model.h"

namespace nibble {

namespace fs = std::filesystem;

struct ModelFile::Impl {
  fs::path path;
  std::optional<GgufFile> gguf;
  std::optional<SafetensorsModel> safetensors;
  std::optional<RandomTensors> random;
  std::optional<HfQuantizedTensors> joined;  // of a quantised checkpoint
  ModelConfig config;
  ModelTensors tensors;

  const TensorSource& source() const {
    if (gguf) return gguf->tensors();
    if (joined) return joined->source;
    return safetensors ? safetensors->tensors() : random->source;
  }
  Status ReadGguf();
  Status ReadHf(const HfConfig& hf);
  Status FindAll(const TensorRules& rules);
  Status ReadCacheScales(const TensorRules& rules);
};

Status ModelFile::Impl::FindAll(const TensorRules& rules) {
  NIBBLE_TRY(tensors, FindTensors(source(), config, rules));
  config.tied_embeddings = !tensors.output.weight || tensors.tie_stored_output;
  config.parameters = tensors.parameters;
  return {};
}

Status ModelFile::Impl::ReadGguf() {
  NIBBLE_RETURN_IF_ERROR(gguf->CheckIsModel());
  NIBBLE_TRY(const std::string_view name, gguf->GetString("general.architecture"));
  NIBBLE_TRY(const Architecture* architecture, FindArchitecture(name));
  NIBBLE_TRY(config, ReadGgufConfig(*gguf, *architecture));
  // attn_rot_embd holds the frequencies that the base gives anyway (llama.cpp skips it as well).
  return FindAll({.naming = &architecture->gguf,
                  .prefixes = {""},
                  .ignored_prefixes = {},
                  .ignored_suffixes = {"rope_freqs.weight", "rope_factors_long.weight",
                                       "rope_factors_short.weight", "attn_rot_embd.weight"}});
}

// Scales of the layers' keys and values: one float each.
Status ModelFile::Impl::ReadCacheScales(const TensorRules& rules) {
  const auto read = [&](const std::string& name, float& scale) -> Status {
    for (const std::string_view prefix : rules.prefixes) {
      const SourceTensor* tensor = source().Find(std::string(prefix) + name);
      if (tensor == nullptr) continue;
      if (tensor->elements() != 1 || !tensor->format ||
          TraitsOf(*tensor->format).block_elements != 1) {
        return BadInput("tensor '{}': expected one float, found {} {}", tensor->name,
                        tensor->type_name, tensor->ShapeString());
      }
      TraitsOf(*tensor->format).decode(tensor->bytes.data(), &scale, 1);
      if (scale > 0x1p-60F && scale < 0x1p60F) return {};
      return BadInput("tensor '{}': expected a positive scale, found {}", tensor->name, scale);
    }
    return {};
  };
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const std::string attention =
        std::string(rules.naming->layers) + std::to_string(i) + ".self_attn.";
    NIBBLE_RETURN_IF_ERROR(read(attention + "k_scale", config.layers[i].key_scale));
    NIBBLE_RETURN_IF_ERROR(read(attention + "v_scale", config.layers[i].value_scale));
  }
  return {};
}

Status ModelFile::Impl::ReadHf(const HfConfig& hf) {
  config = hf.config;
  if (hf.quantization && safetensors) {
    NIBBLE_TRY(joined, JoinHfLinears(safetensors->tensors(), *hf.quantization));
  }
  // Base models are saved without the outer name, text and image models with one more.
  TensorRules rules{.naming = &hf.architecture->hf,
                    .prefixes = {hf.architecture->hf.outer, "", "language_model.model.",
                                 "language_model.", "model.language_model."},
                    .ignored_prefixes = {"vision_tower.", "multi_modal_projector.",
                                         "model.vision_tower.", "model.multi_modal_projector."},
                    .ignored_suffixes = {".rotary_emb.inv_freq"},
                    .tie = config.tied_embeddings,
                    .tie_forbidden = hf.tie_given && !config.tied_embeddings};
  if (config.learned_positions) {
    rules.prefixes.resize(2);
    rules.ignored_suffixes = {".attn.bias", ".attn.masked_bias"};  // causal masks
  }
  if (hf.quantization && hf.quantization->f8_cache) {
    NIBBLE_RETURN_IF_ERROR(ReadCacheScales(rules));
  }
  if (joined) {  // scales of a quantised cache
    for (const std::string_view name : {".k_scale", ".v_scale", ".q_scale", ".prob_scale"}) {
      rules.ignored_suffixes.push_back(name);
    }
  }
  return FindAll(rules);
}

namespace {

// The folder of a Hugging Face model and what of it to open; nothing when the path is a GGUF file.
struct HfPath {
  fs::path folder;
  fs::path weights;
};

Result<std::optional<HfPath>> FindHf(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return HfPath{.folder = path, .weights = path};
  if (!fs::exists(path, error)) {
    return BadInput("{}: no such file or folder", path.string());
  }
  if (path.extension() == ".safetensors" ||
      path.filename().string().ends_with(".safetensors.index.json")) {
    return HfPath{.folder = path.has_parent_path() ? path.parent_path() : ".", .weights = path};
  }
  return std::nullopt;
}

// AutoGPTQ's own file, which older checkpoints have in place of a key in config.json.
Status ReadQuantizeConfig(const fs::path& folder, const JsonLimits& limits, HfConfig& hf) {
  const fs::path path = folder / "quantize_config.json";
  std::error_code error;
  if (!fs::exists(path, error)) return {};
  NIBBLE_TRY(const JsonDocument document, JsonDocument::ReadFile(path.string(), limits));
  if (!document.root().is_object()) return BadInput("{}: expected an object", path.string());
  auto quantization = ReadHfQuantization(document.root());
  if (!quantization) return Within(path.string(), quantization.error());
  hf.quantization = *std::move(quantization);
  return {};
}

}  // namespace

Result<ModelFile> ModelFile::Open(const fs::path& path) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  NIBBLE_TRY(const std::optional<HfPath> hf_path, FindHf(path));
  if (!hf_path) {
    NIBBLE_TRY(impl->gguf, GgufFile::Open(path));
    const Status status = impl->ReadGguf();
    if (!status) return Within(path.string(), status.error());
    return ModelFile(std::move(impl));
  }
  const fs::path config_path = hf_path->folder / "config.json";
  std::error_code error;
  if (!fs::exists(config_path, error)) {
    NIBBLE_RETURN_IF_ERROR(RefuseAdapterFolder(hf_path->folder));
    return BadInput("{}: a Hugging Face model needs a config.json, and there is none",
                    hf_path->folder.string());
  }
  // The largest published config.json has some kilobytes.
  const JsonLimits limits{.max_bytes = size_t{4} << 20, .max_values = size_t{1} << 20};
  NIBBLE_TRY(const JsonDocument document, JsonDocument::ReadFile(config_path.string(), limits));
  auto hf = ReadHfConfig(document.root());
  if (!hf) return Within(config_path.string(), hf.error());
  if (!hf->quantization) NIBBLE_RETURN_IF_ERROR(ReadQuantizeConfig(hf_path->folder, limits, *hf));
  NIBBLE_TRY(impl->safetensors, SafetensorsModel::Open(hf_path->weights));
  const Status status = impl->ReadHf(*hf);
  if (!status) return Within(path.string(), status.error());
  return ModelFile(std::move(impl));
}

Result<ModelFile> ModelFile::Random(JsonValue config, const FormatMix& mix) {
  auto impl = std::make_unique<Impl>();
  NIBBLE_TRY(const HfConfig hf, ReadHfConfig(config));
  NIBBLE_TRY(impl->random, MakeRandomTensors(hf.config, hf.architecture->hf, mix));
  NIBBLE_RETURN_IF_ERROR(impl->ReadHf(hf));
  return ModelFile(std::move(impl));
}

ModelFile::ModelFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ModelFile::ModelFile(ModelFile&&) noexcept = default;
ModelFile& ModelFile::operator=(ModelFile&&) noexcept = default;
ModelFile::~ModelFile() = default;

const ModelConfig& ModelFile::config() const { return impl_->config; }
const ModelTensors& ModelFile::tensors() const { return impl_->tensors; }
const TensorSource& ModelFile::source() const { return impl_->source(); }
const fs::path& ModelFile::path() const { return impl_->path; }
const GgufFile* ModelFile::gguf() const { return impl_->gguf ? &*impl_->gguf : nullptr; }
std::span<const MappedFile> ModelFile::files() const {
  if (impl_->gguf) return impl_->gguf->files();
  if (impl_->safetensors) return impl_->safetensors->files();
  return {};
}
bool ModelFile::OutputEqualsEmbedding() const {
  const MatrixRef& output = tensors().output.weight;
  if (!output) return false;
  const std::span<const std::byte> bytes = output.tensor->bytes;
  const std::span<const std::byte> embedding = tensors().embedding.tensor->bytes;
  const bool equal = bytes.size() == embedding.size() &&
                     std::memcmp(bytes.data(), embedding.data(), bytes.size()) == 0;
  if (!files().empty()) {
    const MappedFile& file = files()[static_cast<size_t>(output.tensor->file)];
    file.Drop(static_cast<size_t>(bytes.data() - file.bytes().data()), bytes.size());
  }
  return equal;
}
uint64_t ModelFile::file_bytes() const {
  if (impl_->gguf) return impl_->gguf->file_bytes();
  return impl_->safetensors ? impl_->safetensors->file_bytes() : 0;
}

}  // namespace nibble
