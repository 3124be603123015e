#pragma once

#include <optional>
#include <string_view>

#include "base/result.h"
#include "container/json.h"
#include "model/config.h"
#include "model/config/architecture.h"

namespace nibble {

// Typed access to config.json with the range that a size may have.
class HfReader {
 public:
  explicit HfReader(JsonValue object) : object_(object) {}

  std::optional<JsonValue> Find(std::string_view key) const { return object_.Find(key); }
  JsonValue object() const { return object_; }

  // Absent and null give the fallback.
  Result<int> IntOr(std::string_view key, int fallback) const;
  Result<double> DoubleOr(std::string_view key, double fallback) const;
  Result<bool> BoolOr(std::string_view key, bool fallback) const {
    return object_.GetBoolOr(key, fallback);
  }
  Result<std::string_view> StringOr(std::string_view key, std::string_view fallback) const {
    return object_.GetStringOr(key, fallback);
  }
  // Absent gives one value, null another.
  Result<int> IntOr(std::string_view key, int absent, int null) const {
    return IntOr(key, IsNull(key) ? null : absent);
  }
  Result<double> DoubleOr(std::string_view key, double absent, double null) const {
    return DoubleOr(key, IsNull(key) ? null : absent);
  }

 private:
  bool IsNull(std::string_view key) const {
    const std::optional<JsonValue> value = object_.Find(key);
    return value && value->is_null();
  }
  JsonValue object_;
};

// The rotary embeddings of a config.json: one for all layers, or [0] for full_attention and [1] for
// sliding_attention. dims are those of head_dim after partial_rotary_factor.
struct HfRopes {
  RopeConfig full;
  std::optional<RopeConfig> sliding;
};
Result<HfRopes> ReadHfRopes(const HfReader& reader, const HfModelType& type, int head_dim,
                            int context);

}  // namespace nibble
