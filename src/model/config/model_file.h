#pragma once

#include <filesystem>
#include <memory>
#include <span>

#include "base/result.h"
#include "container/json.h"
#include "container/tensor_source.h"
#include "model/config.h"
#include "model/config/model_tensors.h"
#include "platform/memory.h"

namespace nibble {

class FormatMix;
class GgufFile;

// A model on disk, understood but not loaded: its configuration and where its tensors lie in the
// mapped files. Everything has been checked; nothing of the tensors' bytes has been read.
class ModelFile {
 public:
  // A GGUF file (any shard of a split one), a Hugging Face folder, or a .safetensors file or
  // .safetensors.index.json with config.json beside it. Errors name the file.
  static Result<ModelFile> Open(const std::filesystem::path& path);
  // No file at all: the shape of a config.json with random weights in a mix's formats, for
  // measurements of speed. Tensors of one format share their bytes.
  static Result<ModelFile> Random(JsonValue config, const FormatMix& mix);
  ModelFile(ModelFile&&) noexcept;
  ModelFile& operator=(ModelFile&&) noexcept;
  ~ModelFile();

  const ModelConfig& config() const;
  const ModelTensors& tensors() const;
  const TensorSource& source() const;
  // The mappings, by SourceTensor::file.
  std::span<const MappedFile> files() const;
  uint64_t file_bytes() const;
  const std::filesystem::path& path() const;  // as given to Open; empty for random weights
  const GgufFile* gguf() const;               // null when it is none
  bool is_gguf() const { return gguf() != nullptr; }

  // Whether a stored output that may be left (ModelTensors::tie_stored_output) equals the
  // embedding byte for byte. Reads both, and gives the output's pages back.
  bool OutputEqualsEmbedding() const;

 private:
  struct Impl;
  explicit ModelFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace nibble
