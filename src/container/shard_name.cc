#include "container/shard_name.h"

#include <fmt/format.h>

namespace nibble {
namespace {

// Five digits, or -1.
int FiveDigits(std::string_view text) {
  int value = 0;
  for (const char c : text.substr(0, 5)) {
    if (c < '0' || c > '9') return -1;
    value = 10 * value + (c - '0');
  }
  return value;
}

}  // namespace

std::string ShardName::File(int shard, std::string_view extension) const {
  return fmt::format("{}-{:05}-of-{:05}{}", prefix, shard, count, extension);
}

std::optional<ShardName> ParseShardName(std::string_view file_name, std::string_view extension) {
  constexpr size_t kTail = std::string_view("-00001-of-00005").size();
  if (!file_name.ends_with(extension)) return std::nullopt;
  file_name.remove_suffix(extension.size());
  if (file_name.size() <= kTail) return std::nullopt;
  const std::string_view tail = file_name.substr(file_name.size() - kTail);
  const int number = FiveDigits(tail.substr(1));
  const int count = FiveDigits(tail.substr(10));
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || number < 1 || count < number) {
    return std::nullopt;
  }
  return ShardName{std::string(file_name.substr(0, file_name.size() - kTail)), number, count};
}

}  // namespace nibble
