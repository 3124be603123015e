// Typed access to GGUF metadata.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "container/byte_reader.h"
#include "container/gguf.h"
#include "container/gguf_parser.h"
#include "container/json_text.h"

namespace nibble {
namespace {

template <class T>
T Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

bool IsInteger(GgufType type) {
  return GgufScalarBytes(type) > 0 && type != GgufType::kBool && type != GgufType::kFloat32 &&
         type != GgufType::kFloat64;
}
bool IsNumber(GgufType type) {
  return IsInteger(type) || type == GgufType::kFloat32 || type == GgufType::kFloat64;
}

// An integer of any width; nothing when an unsigned one does not fit.
std::optional<int64_t> LoadInt(GgufType type, const std::byte* at) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kBool:
      return Load<uint8_t>(at);
    case GgufType::kInt8:
      return Load<int8_t>(at);
    case GgufType::kUint16:
      return Load<uint16_t>(at);
    case GgufType::kInt16:
      return Load<int16_t>(at);
    case GgufType::kUint32:
      return Load<uint32_t>(at);
    case GgufType::kInt32:
      return Load<int32_t>(at);
    case GgufType::kInt64:
      return Load<int64_t>(at);
    case GgufType::kUint64: {
      const auto value = Load<uint64_t>(at);
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

double LoadDouble(GgufType type, const std::byte* at) {
  if (type == GgufType::kFloat32) return static_cast<double>(Load<float>(at));
  if (type == GgufType::kFloat64) return Load<double>(at);
  if (type == GgufType::kUint64) return static_cast<double>(Load<uint64_t>(at));
  return static_cast<double>(LoadInt(type, at).value_or(0));
}

// Walks the strings of a string array (or the one of a string); the parser has checked them.
template <class Visit>
void ForEachString(const GgufEntry& entry, uint64_t limit, Visit visit) {
  ByteReader reader(entry.bytes);
  for (uint64_t i = 0; i < std::min(entry.count, limit); ++i) {
    visit(reader.ReadString(entry.length_bytes, "a string").value_or(""));
  }
}

std::unexpected<Error> WrongType(const GgufEntry& entry, std::string_view expected) {
  return BadInput("'{}': expected {}, found {}", entry.key, expected, entry.TypeString());
}

// The array under a key, of an element type that `accepts`; empty arrays of any type pass.
template <class Accepts>
Result<const GgufEntry*> FindArray(const GgufFile& file, std::string_view key,
                                   std::string_view expected, Accepts accepts) {
  const GgufEntry* entry = file.Find(key);
  if (entry == nullptr) return BadInput("'{}' is missing", key);
  if (entry->type != GgufType::kArray || (entry->count > 0 && !accepts(entry->element_type))) {
    return WrongType(*entry, expected);
  }
  return entry;
}

std::string ScalarText(GgufType type, const std::byte* at) {
  if (type == GgufType::kBool) return Load<uint8_t>(at) != 0 ? "true" : "false";
  if (type == GgufType::kFloat32) return fmt::format("{}", Load<float>(at));
  if (type == GgufType::kFloat64) return fmt::format("{}", Load<double>(at));
  if (type == GgufType::kUint64) return fmt::format("{}", Load<uint64_t>(at));
  return fmt::format("{}", LoadInt(type, at).value_or(0));
}

}  // namespace

std::string_view GgufTypeName(GgufType type) {
  constexpr std::string_view kNames[kGgufTypeCount] = {
      "uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
      "bool",  "string", "array",  "uint64", "int64",  "float64"};
  return kNames[static_cast<uint32_t>(type)];
}

std::string GgufEntry::TypeString() const {
  if (type != GgufType::kArray) return std::string(GgufTypeName(type));
  return fmt::format("array of {} {}", count, GgufTypeName(element_type));
}

std::string GgufEntry::ToString(size_t max_elements) const {
  std::string text;
  if (element_type == GgufType::kString) {
    ForEachString(*this, max_elements, [&](std::string_view value) {
      if (!text.empty()) text += ", ";
      AppendJsonString(value, text);
    });
  } else if (const size_t width = GgufScalarBytes(element_type); width > 0) {
    for (uint64_t i = 0; i < std::min<uint64_t>(count, max_elements); ++i) {
      if (i > 0) text += ", ";
      text += ScalarText(element_type, bytes.data() + i * width);
    }
  }
  if (type != GgufType::kArray) return text;
  const bool cut = count > max_elements || element_type == GgufType::kArray;
  return fmt::format("[{}{}]", text, cut ? (text.empty() ? "…" : ", …") : "");
}

Result<int64_t> GgufFile::GetInt(std::string_view key) const {
  const GgufEntry* entry = Find(key);
  if (entry == nullptr) return BadInput("'{}' is missing", key);
  if (!IsInteger(entry->type)) return WrongType(*entry, "an integer");
  const std::optional<int64_t> value = LoadInt(entry->type, entry->bytes.data());
  if (!value) return BadInput("'{}': the value is larger than 2^63 - 1", key);
  return *value;
}

Result<double> GgufFile::GetDouble(std::string_view key) const {
  const GgufEntry* entry = Find(key);
  if (entry == nullptr) return BadInput("'{}' is missing", key);
  if (!IsNumber(entry->type)) return WrongType(*entry, "a number");
  return LoadDouble(entry->type, entry->bytes.data());
}

Result<bool> GgufFile::GetBool(std::string_view key) const {
  const GgufEntry* entry = Find(key);
  if (entry == nullptr) return BadInput("'{}' is missing", key);
  if (entry->type != GgufType::kBool) return WrongType(*entry, "a bool");
  return Load<uint8_t>(entry->bytes.data()) != 0;
}

Result<std::string_view> GgufFile::GetString(std::string_view key) const {
  const GgufEntry* entry = Find(key);
  if (entry == nullptr) return BadInput("'{}' is missing", key);
  if (entry->type != GgufType::kString) return WrongType(*entry, "a string");
  return ByteReader(entry->bytes).ReadString(entry->length_bytes, "a string");
}

Result<int64_t> GgufFile::GetIntOr(std::string_view key, int64_t fallback) const {
  return Has(key) ? GetInt(key) : fallback;
}
Result<double> GgufFile::GetDoubleOr(std::string_view key, double fallback) const {
  return Has(key) ? GetDouble(key) : fallback;
}
Result<bool> GgufFile::GetBoolOr(std::string_view key, bool fallback) const {
  return Has(key) ? GetBool(key) : fallback;
}
Result<std::string_view> GgufFile::GetStringOr(std::string_view key,
                                               std::string_view fallback) const {
  return Has(key) ? GetString(key) : fallback;
}

Result<std::vector<std::string_view>> GgufFile::GetStrings(std::string_view key) const {
  NIBBLE_TRY(const GgufEntry* entry,
             FindArray(*this, key, "an array of strings",
                       [](GgufType type) { return type == GgufType::kString; }));
  std::vector<std::string_view> values;
  if (entry->element_type != GgufType::kString) return values;
  values.reserve(entry->count);
  ForEachString(*entry, entry->count, [&](std::string_view value) { values.push_back(value); });
  return values;
}

Result<std::vector<int64_t>> GgufFile::GetInts(std::string_view key) const {
  NIBBLE_TRY(const GgufEntry* entry, FindArray(*this, key, "an array of integers", IsInteger));
  std::vector<int64_t> values;
  if (!IsInteger(entry->element_type)) return values;
  const size_t width = GgufScalarBytes(entry->element_type);
  values.reserve(entry->count);
  for (uint64_t i = 0; i < entry->count; ++i) {
    const auto value = LoadInt(entry->element_type, entry->bytes.data() + i * width);
    if (!value) return BadInput("'{}': element {} is larger than 2^63 - 1", key, i);
    values.push_back(*value);
  }
  return values;
}

Result<std::vector<float>> GgufFile::GetFloats(std::string_view key) const {
  NIBBLE_TRY(const GgufEntry* entry, FindArray(*this, key, "an array of numbers", IsNumber));
  std::vector<float> values;
  if (!IsNumber(entry->element_type)) return values;
  const size_t width = GgufScalarBytes(entry->element_type);
  values.reserve(entry->count);
  for (uint64_t i = 0; i < entry->count; ++i) {
    values.push_back(
        static_cast<float>(LoadDouble(entry->element_type, entry->bytes.data() + i * width)));
  }
  return values;
}

Result<std::vector<bool>> GgufFile::GetBools(std::string_view key) const {
  NIBBLE_TRY(const GgufEntry* entry, FindArray(*this, key, "an array of bools", [](GgufType type) {
               return type == GgufType::kBool;
             }));
  std::vector<bool> values;
  if (entry->element_type != GgufType::kBool) return values;
  values.reserve(entry->count);
  for (const std::byte byte : entry->bytes) values.push_back(byte != std::byte{0});
  return values;
}

}  // namespace nibble
