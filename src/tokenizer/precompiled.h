#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nibble {

// SentencePiece's precompiled_charsmap: a Darts double array (Yata et al. 2007) from character
// sequences to their replacements.
class Charsmap {
 public:
  Charsmap() = default;  // maps nothing
  // uint32 size of the array in bytes, the array, NUL-terminated replacements.
  static Result<Charsmap> Parse(std::string_view bytes);

  struct Match {
    size_t length = 0;  // 0: none
    std::string_view replacement;
  };
  Match Longest(std::string_view text) const { return Find(text, true); }
  Match Shortest(std::string_view text) const { return Find(text, false); }
  bool empty() const { return units_.empty(); }

 private:
  Match Find(std::string_view text, bool longest) const;
  std::optional<uint32_t> Unit(uint32_t index) const {
    if (index >= units_.size()) return std::nullopt;
    return units_[index];
  }
  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace nibble
