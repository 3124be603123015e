#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace nibble {

// "model-00002-of-00005.gguf" taken apart.
struct ShardName {
  std::string prefix;  // "model"
  int number;          // from 1
  int count;

  std::string File(int shard, std::string_view extension) const;
};

// Nothing for a name of another form. The extension has its dot: ".gguf".
std::optional<ShardName> ParseShardName(std::string_view file_name, std::string_view extension);

}  // namespace nibble
