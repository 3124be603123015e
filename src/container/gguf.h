#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "container/tensor_source.h"
#include "platform/memory.h"

namespace nibble {

// GGUF, https://github.com/ggml-org/ggml/blob/master/docs/gguf.md: versions 1 (32-bit counts), 2
// and 3, little-endian.
enum class GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};
inline constexpr uint32_t kGgufTypeCount = 13;
std::string_view GgufTypeName(GgufType type);  // "uint32"

// One metadata entry: a view into the file.
struct GgufEntry {
  std::string_view key;
  GgufType type = GgufType::kUint8;
  GgufType element_type = GgufType::kUint8;  // of an array
  uint64_t count = 1;                        // of an array
  uint8_t length_bytes = 8;                  // width of a length in this file: 4 in version 1
  std::span<const std::byte> bytes;          // the value; of an array its elements

  std::string TypeString() const;  // "array of 49152 string"
  // The value for people: strings quoted, of an array its first max_elements.
  std::string ToString(size_t max_elements = 8) const;
};

// A GGUF model: one file, or all files of a split one. Every count, length, offset and type has
// been checked against the bytes that are there. Metadata is the first shard's.
class GgufFile {
 public:
  // Maps the file; of a split model ("name-00002-of-00005.gguf", split.count) any shard's path
  // opens all, and a missing one is named. Errors name the file.
  static Result<GgufFile> Open(const std::filesystem::path& path);
  // One unsplit file in memory, which must outlive the result.
  static Result<GgufFile> Parse(std::span<const std::byte> bytes);

  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }
  std::span<const GgufEntry> metadata() const { return metadata_; }
  const GgufEntry* Find(std::string_view key) const;  // null when absent; logarithmic
  bool Has(std::string_view key) const { return Find(key) != nullptr; }

  // Typed access. Errors: "'llama.block_count' is missing", "'llama.block_count': expected an
  // integer, found string". Integers of every width and sign are one kind, checked for range;
  // GetDouble takes integers too. The Or forms give the fallback when the key is absent.
  Result<int64_t> GetInt(std::string_view key) const;
  Result<double> GetDouble(std::string_view key) const;
  Result<bool> GetBool(std::string_view key) const;
  Result<std::string_view> GetString(std::string_view key) const;
  Result<int64_t> GetIntOr(std::string_view key, int64_t fallback) const;
  Result<double> GetDoubleOr(std::string_view key, double fallback) const;
  Result<bool> GetBoolOr(std::string_view key, bool fallback) const;
  Result<std::string_view> GetStringOr(std::string_view key, std::string_view fallback) const;
  // Arrays, converted element by element; strings are views into the file.
  Result<std::vector<std::string_view>> GetStrings(std::string_view key) const;
  Result<std::vector<int64_t>> GetInts(std::string_view key) const;
  Result<std::vector<float>> GetFloats(std::string_view key) const;
  Result<std::vector<bool>> GetBools(std::string_view key) const;

  const TensorSource& tensors() const { return tensors_; }
  // The mappings behind the views, by SourceTensor::file; empty after Parse().
  std::span<const MappedFile> files() const { return files_; }
  uint64_t file_bytes() const { return file_bytes_; }

  // Ok for a language model; an error that says what the file is for a LoRA adapter, an image
  // projector, an importance matrix, or a vocabulary without tensors.
  Status CheckIsModel() const;

 private:
  friend class GgufParser;
  std::vector<MappedFile> files_;
  uint32_t version_ = 0;
  uint64_t alignment_ = 32;
  uint64_t file_bytes_ = 0;
  std::vector<GgufEntry> metadata_;
  std::vector<uint32_t> by_key_;  // indices into metadata_, sorted by key
  TensorSource tensors_;
};

// True when the bytes begin as a GGUF file does, of either byte order.
bool LooksLikeGguf(std::span<const std::byte> bytes);

}  // namespace nibble
