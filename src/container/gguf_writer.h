#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "container/gguf.h"
#include "container/output_file.h"
#include "format/format.h"

namespace nibble {

// Writes a GGUF version 3 file: first metadata and the list of tensors, then Begin(), which gives
// the stream that takes the tensors' bytes in the order they were added.
class GgufWriter {
 public:
  void SetString(std::string_view key, std::string_view value);
  void SetBool(std::string_view key, bool value);
  void SetUint32(std::string_view key, uint32_t value);
  void SetInt32(std::string_view key, int32_t value);
  void SetUint64(std::string_view key, uint64_t value);
  void SetFloat32(std::string_view key, float value);
  void SetStrings(std::string_view key, std::span<const std::string_view> values);
  void SetInt32s(std::string_view key, std::span<const int32_t> values);
  void SetFloat32s(std::string_view key, std::span<const float> values);
  void SetBools(std::string_view key, const std::vector<bool>& values);
  // An entry of another file, of any version. Error: nested arrays.
  Status Copy(const GgufEntry& entry);

  // shape: outermost dimension first, one to four of them. Errors: a name used before, a format
  // GGUF has not, rows that do not divide into blocks.
  Status AddTensor(std::string_view name, Format format, std::span<const uint64_t> shape);

  // Of what Begin writes.
  uint64_t HeaderBytes() const;
  // Writes all up to the data. Errors: a key set twice, the file system.
  Result<TensorStream> Begin(const std::filesystem::path& path) const;

 private:
  void Key(std::string_view key, GgufType type);
  void ArrayKey(std::string_view key, GgufType element_type, uint64_t count);

  std::string metadata_;
  uint64_t entry_count_ = 0;
  std::set<std::string, std::less<>> keys_;
  std::string repeated_key_;
  std::string tensors_;
  std::set<std::string, std::less<>> names_;
  std::vector<uint64_t> sizes_;
  uint64_t data_bytes_ = 0;
};

}  // namespace nibble
