#pragma once

#include <span>
#include <string>
#include <vector>

#include "container/json.h"
#include "container/safetensors.h"

namespace nibble {

// Reads safetensors headers: eight bytes of length, a JSON object, then the data.
class SafetensorsParser {
 public:
  // Appends the file's tensors, with their bytes, and keeps the header that owns their names.
  static Status AddFile(std::span<const std::byte> bytes, int file_index, SafetensorsModel& model,
                        std::vector<SourceTensor>& tensors);
  // Opens the shards an index names and checks that they hold the tensors it lists.
  static Result<SafetensorsModel> OpenIndex(const std::filesystem::path& path);
  static Result<SafetensorsModel> OpenFile(const std::filesystem::path& path);
};

}  // namespace nibble
