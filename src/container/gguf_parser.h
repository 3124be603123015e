#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "container/byte_reader.h"
#include "container/gguf.h"

namespace nibble {

// Bytes of one value of a scalar type; 0 for strings and arrays.
size_t GgufScalarBytes(GgufType type);

// Reads one GGUF file of a model into a GgufFile: header, metadata, tensor table.
class GgufParser {
 public:
  GgufParser(std::span<const std::byte> bytes, int file_index)
      : reader_(bytes), bytes_(bytes), file_index_(file_index) {}

  // Fills version, alignment, metadata and its index; tensors are returned.
  Result<std::vector<SourceTensor>> Run(GgufFile& file);

  static Result<GgufFile> OpenSplit(const std::filesystem::path& path);

 private:
  Status Header(GgufFile& file);
  Status Metadata(GgufFile& file);
  Result<GgufEntry> Entry();
  Status SkipArray(GgufEntry* entry, int depth);
  Status CheckBools(std::span<const std::byte> bytes) const;
  Status Alignment(GgufFile& file);
  Result<SourceTensor> TensorInfo();
  Status PlaceTensors(uint64_t alignment, std::vector<SourceTensor>& tensors);
  static Status CheckOverlaps(const std::vector<SourceTensor>& tensors);

  ByteReader reader_;
  std::span<const std::byte> bytes_;
  int file_index_;
  int width_ = 8;  // of lengths, counts and dimensions
  uint64_t tensor_count_ = 0;
  uint64_t entry_count_ = 0;
  std::vector<uint64_t> offsets_;  // of the tensors, from the data section's begin
  std::vector<uint64_t> sizes_;
};

}  // namespace nibble
