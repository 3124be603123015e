#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace nibble {

enum class JsonKind : uint8_t { kNull, kBool, kInt, kDouble, kString, kArray, kObject };

// "a string", "an array": for messages.
std::string_view JsonKindName(JsonKind kind);

struct JsonLimits {
  size_t max_bytes = size_t{128} << 20;  // the largest published tokenizer.json has 35 MB
  size_t max_values = size_t{16} << 20;  // values and keys, 16 bytes each in memory
  int max_depth = 128;                   // arrays and objects inside one another
};

class JsonValue;
class JsonArray;
class JsonObject;

// A parsed JSON text: RFC 8259, and what Python's json module writes and reads beyond it (NaN,
// Infinity, -Infinity; integers that do not fit 64 bits become doubles: model_max_length of many
// tokenizer_config.json files is 10^30). Invalid UTF-8 is an error; a lone surrogate escape reads
// as U+FFFD. Values are views into the document: it must outlive them; moving it is allowed.
class JsonDocument {
 public:
  // Parses in place, so the text is taken by value. Errors name line and column.
  static Result<JsonDocument> Parse(std::string text, const JsonLimits& limits = {});
  // Reads a file no longer than limits.max_bytes. Errors name the file.
  static Result<JsonDocument> ReadFile(const std::string& path, const JsonLimits& limits = {});

  JsonDocument(JsonDocument&&) noexcept;
  JsonDocument& operator=(JsonDocument&&) noexcept;
  ~JsonDocument();

  JsonValue root() const;

 private:
  friend class JsonValue;
  friend class JsonArray;
  friend class JsonObject;
  friend class JsonParser;
  struct Node;
  struct Impl;
  explicit JsonDocument(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// One value: a pointer, copied freely.
class JsonValue {
 public:
  JsonKind kind() const;
  bool is_null() const { return kind() == JsonKind::kNull; }
  bool is_bool() const { return kind() == JsonKind::kBool; }
  bool is_number() const { return kind() == JsonKind::kInt || kind() == JsonKind::kDouble; }
  bool is_string() const { return kind() == JsonKind::kString; }
  bool is_array() const { return kind() == JsonKind::kArray; }
  bool is_object() const { return kind() == JsonKind::kObject; }

  // Errors: "expected an integer, found a string".
  Result<bool> AsBool() const;
  Result<int64_t> AsInt() const;    // an integer, or a double that is one ("2048.0")
  Result<double> AsDouble() const;  // any number
  Result<std::string_view> AsString() const;
  Result<JsonArray> AsArray() const;
  Result<JsonObject> AsObject() const;

  // The member of an object; nothing when it is absent or this is no object. Of several members
  // with one key the last counts, as in Python. Linear in the number of members.
  std::optional<JsonValue> Find(std::string_view key) const;

  // Typed members of an object. Errors: "'hidden_size' is missing", "'hidden_size': expected an
  // integer, found null". The Or forms give the fallback when the member is absent or null.
  Result<JsonValue> Get(std::string_view key) const;
  Result<bool> GetBool(std::string_view key) const;
  Result<int64_t> GetInt(std::string_view key) const;
  Result<double> GetDouble(std::string_view key) const;
  Result<std::string_view> GetString(std::string_view key) const;
  Result<bool> GetBoolOr(std::string_view key, bool fallback) const;
  Result<int64_t> GetIntOr(std::string_view key, int64_t fallback) const;
  Result<double> GetDoubleOr(std::string_view key, double fallback) const;
  Result<std::string_view> GetStringOr(std::string_view key, std::string_view fallback) const;

  // As JSON text, members in their order.
  std::string ToString() const;

 private:
  friend class JsonDocument;
  friend class JsonArray;
  friend class JsonObject;
  explicit JsonValue(const JsonDocument::Node* node) : node_(node) {}
  const JsonDocument::Node* node_;
};

// for (JsonValue v : array). Walking is one step per element; there is no index access.
// The array must outlive the loop: not `for (JsonValue v : *value.AsArray())`, whose temporary dies
// first (GCC 12 has no P2718).
class JsonArray {
 public:
  class Iterator {
   public:
    using value_type = JsonValue;
    using difference_type = std::ptrdiff_t;
    using iterator_category = std::input_iterator_tag;
    explicit Iterator(const JsonDocument::Node* node) : node_(node) {}
    JsonValue operator*() const;
    Iterator& operator++();
    bool operator==(const Iterator&) const = default;

   private:
    const JsonDocument::Node* node_;
  };
  size_t size() const;
  bool empty() const { return size() == 0; }
  Iterator begin() const;
  Iterator end() const;

 private:
  friend class JsonValue;
  explicit JsonArray(const JsonDocument::Node* node) : node_(node) {}
  const JsonDocument::Node* node_;
};

// for (auto [key, value] : object), in the order of the text, repeated keys included.
class JsonObject {
 public:
  struct Member {
    std::string_view key;
    JsonValue value;
  };
  class Iterator {
   public:
    using value_type = Member;
    using difference_type = std::ptrdiff_t;
    using iterator_category = std::input_iterator_tag;
    explicit Iterator(const JsonDocument::Node* node) : node_(node) {}
    Member operator*() const;
    Iterator& operator++();
    bool operator==(const Iterator&) const = default;

   private:
    const JsonDocument::Node* node_;
  };
  size_t size() const;
  bool empty() const { return size() == 0; }
  Iterator begin() const;
  Iterator end() const;

 private:
  friend class JsonValue;
  explicit JsonObject(const JsonDocument::Node* node) : node_(node) {}
  const JsonDocument::Node* node_;
};

}  // namespace nibble
