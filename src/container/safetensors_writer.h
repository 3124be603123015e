#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "container/output_file.h"

namespace nibble {

// Writes a safetensors file: first the list of tensors, then Begin(), which gives the stream that
// takes the tensors' bytes in the order they were added.
class SafetensorsWriter {
 public:
  void SetMetadata(std::string_view key, std::string_view value);
  // dtype: "F32", "BF16", …; shape: outermost dimension first. Errors: a name used before, an
  // unknown dtype, elements that do not fill a byte.
  Status AddTensor(std::string_view name, std::string_view dtype, std::span<const uint64_t> shape);
  Result<TensorStream> Begin(const std::filesystem::path& path) const;

 private:
  std::string metadata_;  // members of __metadata__
  std::string tensors_;   // members of the header
  std::set<std::string, std::less<>> names_;
  std::vector<uint64_t> sizes_;
  uint64_t data_bytes_ = 0;
};

}  // namespace nibble
