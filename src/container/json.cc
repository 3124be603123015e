#include "container/json.h"

#include <fmt/format.h>

#include <cmath>

#include "base/check.h"
#include "container/json_node.h"

namespace nibble {
namespace {

std::unexpected<Error> WrongKind(std::string_view expected, JsonKind found) {
  return BadInput("expected {}, found {}", expected, JsonKindName(found));
}

template <class T>
Result<T> Named(std::string_view key, Result<T> result) {
  if (result) return result;
  return BadInput("'{}': {}", key, result.error().message);
}

}  // namespace

std::string_view JsonKindName(JsonKind kind) {
  switch (kind) {
    case JsonKind::kNull:
      return "null";
    case JsonKind::kBool:
      return "true or false";
    case JsonKind::kInt:
      return "an integer";
    case JsonKind::kDouble:
      return "a number";
    case JsonKind::kString:
      return "a string";
    case JsonKind::kArray:
      return "an array";
    case JsonKind::kObject:
      return "an object";
  }
  return "";
}

JsonDocument::JsonDocument(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
JsonDocument::JsonDocument(JsonDocument&&) noexcept = default;
JsonDocument& JsonDocument::operator=(JsonDocument&&) noexcept = default;
JsonDocument::~JsonDocument() = default;

JsonValue JsonDocument::root() const { return JsonValue(impl_->nodes.data()); }

JsonKind JsonValue::kind() const { return node_->kind; }

Result<bool> JsonValue::AsBool() const {
  if (!is_bool()) return WrongKind("true or false", kind());
  return node_->integer != 0;
}

Result<int64_t> JsonValue::AsInt() const {
  if (kind() == JsonKind::kInt) return node_->integer;
  if (kind() != JsonKind::kDouble) return WrongKind("an integer", kind());
  const double value = node_->real;
  if (std::fabs(value) > 0x1p53 || value != std::trunc(value)) {
    return BadInput("expected an integer, found {}", value);
  }
  return static_cast<int64_t>(value);
}

Result<double> JsonValue::AsDouble() const {
  if (kind() == JsonKind::kInt) return static_cast<double>(node_->integer);
  if (kind() == JsonKind::kDouble) return node_->real;
  return WrongKind("a number", kind());
}

Result<std::string_view> JsonValue::AsString() const {
  if (!is_string()) return WrongKind("a string", kind());
  return node_->string();
}

Result<JsonArray> JsonValue::AsArray() const {
  if (!is_array()) return WrongKind("an array", kind());
  return JsonArray(node_);
}

Result<JsonObject> JsonValue::AsObject() const {
  if (!is_object()) return WrongKind("an object", kind());
  return JsonObject(node_);
}

std::optional<JsonValue> JsonValue::Find(std::string_view key) const {
  std::optional<JsonValue> found;
  if (!is_object()) return found;
  for (const auto& [name, value] : JsonObject(node_)) {
    if (name == key) found = value;
  }
  return found;
}

Result<JsonValue> JsonValue::Get(std::string_view key) const {
  if (!is_object()) return WrongKind("an object", kind());
  const std::optional<JsonValue> value = Find(key);
  if (!value) return BadInput("'{}' is missing", key);
  return *value;
}

Result<bool> JsonValue::GetBool(std::string_view key) const {
  NIBBLE_TRY(const JsonValue value, Get(key));
  return Named(key, value.AsBool());
}
Result<int64_t> JsonValue::GetInt(std::string_view key) const {
  NIBBLE_TRY(const JsonValue value, Get(key));
  return Named(key, value.AsInt());
}
Result<double> JsonValue::GetDouble(std::string_view key) const {
  NIBBLE_TRY(const JsonValue value, Get(key));
  return Named(key, value.AsDouble());
}
Result<std::string_view> JsonValue::GetString(std::string_view key) const {
  NIBBLE_TRY(const JsonValue value, Get(key));
  return Named(key, value.AsString());
}

Result<bool> JsonValue::GetBoolOr(std::string_view key, bool fallback) const {
  const std::optional<JsonValue> value = Find(key);
  if (!value || value->is_null()) return fallback;
  return Named(key, value->AsBool());
}
Result<int64_t> JsonValue::GetIntOr(std::string_view key, int64_t fallback) const {
  const std::optional<JsonValue> value = Find(key);
  if (!value || value->is_null()) return fallback;
  return Named(key, value->AsInt());
}
Result<double> JsonValue::GetDoubleOr(std::string_view key, double fallback) const {
  const std::optional<JsonValue> value = Find(key);
  if (!value || value->is_null()) return fallback;
  return Named(key, value->AsDouble());
}
Result<std::string_view> JsonValue::GetStringOr(std::string_view key,
                                                std::string_view fallback) const {
  const std::optional<JsonValue> value = Find(key);
  if (!value || value->is_null()) return fallback;
  return Named(key, value->AsString());
}

size_t JsonArray::size() const { return node_->count; }
JsonArray::Iterator JsonArray::begin() const { return Iterator(node_ + 1); }
JsonArray::Iterator JsonArray::end() const { return Iterator(node_->next()); }
JsonValue JsonArray::Iterator::operator*() const { return JsonValue(node_); }
JsonArray::Iterator& JsonArray::Iterator::operator++() {
  node_ = node_->next();
  return *this;
}

size_t JsonObject::size() const { return node_->count; }
JsonObject::Iterator JsonObject::begin() const { return Iterator(node_ + 1); }
JsonObject::Iterator JsonObject::end() const { return Iterator(node_->next()); }
JsonObject::Member JsonObject::Iterator::operator*() const {
  return {node_->string(), JsonValue(node_ + 1)};
}
JsonObject::Iterator& JsonObject::Iterator::operator++() {
  node_ = (node_ + 1)->next();
  return *this;
}

}  // namespace nibble
