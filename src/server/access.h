#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nibble::server {

// The keys that open a server, by name. Only their hashes are kept.
class AccessKeys {
 public:
  // "KEY", or "NAME=KEY". Errors: an empty key or name, one that was there before, a key that no
  // HTTP header can hold. The message does not repeat the key.
  Status Add(std::string_view given);
  // A line each; empty lines and those that begin with # are left out. Errors name the line.
  Status AddLines(std::string_view text);

  bool empty() const { return keys_.empty(); }

  // The name of the key that was presented; nothing when it is none of ours. The time it takes does
  // not depend on what was presented, beyond its length.
  std::optional<std::string> Find(std::string_view presented) const;

 private:
  struct Key {
    std::string name;
    std::string digest;
  };
  std::vector<Key> keys_;
};

}  // namespace nibble::server
