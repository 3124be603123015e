#include "tokenizer/precompiled.h"

#include <cstring>

namespace nibble {
namespace {

// Bits of one unit of the array.
uint32_t OffsetOf(uint32_t unit) { return (unit >> 10) << ((unit & (1U << 9)) >> 6); }
uint32_t LabelOf(uint32_t unit) { return unit & ((1U << 31) | 0xFF); }
bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t ValueOf(uint32_t unit) { return unit & ((1U << 31) - 1); }

}  // namespace

Result<Charsmap> Charsmap::Parse(std::string_view bytes) {
  Charsmap map;
  if (bytes.empty()) return map;
  uint32_t array_bytes = 0;
  if (bytes.size() < sizeof array_bytes) {
    return BadInput("precompiled_charsmap: expected at least 4 bytes, found {}", bytes.size());
  }
  std::memcpy(&array_bytes, bytes.data(), sizeof array_bytes);
  if (array_bytes % 4 != 0 || array_bytes > bytes.size() - 4) {
    return BadInput("precompiled_charsmap: an array of {} bytes does not fit in {} bytes",
                    array_bytes, bytes.size());
  }
  map.units_.resize(array_bytes / 4);
  std::memcpy(map.units_.data(), bytes.data() + 4, array_bytes);
  map.replacements_ = bytes.substr(4 + size_t{array_bytes});
  if (!map.replacements_.empty() && map.replacements_.back() != '\0') {
    return BadInput("precompiled_charsmap: the last replacement has no end");
  }
  return map;
}

Charsmap::Match Charsmap::Find(std::string_view text, bool longest) const {
  Match best;
  if (units_.empty()) return best;
  uint32_t node = OffsetOf(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    node ^= byte;
    const auto unit = Unit(node);
    if (!unit || byte == 0 || LabelOf(*unit) != byte) break;
    node ^= OffsetOf(*unit);
    if (!HasLeaf(*unit)) continue;
    const auto leaf = Unit(node);
    if (!leaf || ValueOf(*leaf) >= replacements_.size()) break;
    best = {i + 1, std::string_view(replacements_.c_str() + ValueOf(*leaf))};
    if (!longest) break;
  }
  return best;
}

}  // namespace nibble
