#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "container/json.h"
#include "container/tensor_source.h"
#include "platform/memory.h"

namespace nibble {

// A dtype of safetensors, https://github.com/huggingface/safetensors.
struct SafetensorsDtype {
  std::string_view name;  // "BF16"
  int bits;               // of one element
  std::optional<Format> format;
};
std::span<const SafetensorsDtype> SafetensorsDtypes();
const SafetensorsDtype* FindSafetensorsDtype(std::string_view name);  // null when unknown

// An error that says so when the folder holds a LoRA adapter (PEFT's adapter_config.json) instead
// of a model, with the model it belongs to.
Status RefuseAdapterFolder(const std::filesystem::path& folder);

// A safetensors model: one file, or the files of a model.safetensors.index.json. The headers have
// been checked: no repeated names, no overlaps or holes, sizes equal to dtype × shape.
class SafetensorsModel {
 public:
  // A .safetensors file (one of several opens all by its index), an index
  // (*.safetensors.index.json), or a folder that holds
  // model.safetensors.index.json or model.safetensors. Missing shards and tensors are named.
  static Result<SafetensorsModel> Open(const std::filesystem::path& path);
  // One file in memory, which must outlive the result.
  static Result<SafetensorsModel> Parse(std::span<const std::byte> bytes);

  const TensorSource& tensors() const { return tensors_; }
  // __metadata__ of the first file.
  std::optional<std::string_view> Metadata(std::string_view key) const;
  // The mappings behind the views, by SourceTensor::file; empty after Parse().
  std::span<const MappedFile> files() const { return files_; }
  uint64_t file_bytes() const { return file_bytes_; }

 private:
  friend class SafetensorsParser;
  std::vector<MappedFile> files_;
  std::vector<JsonDocument> headers_;  // own the names
  TensorSource tensors_;
  uint64_t file_bytes_ = 0;
};

}  // namespace nibble
