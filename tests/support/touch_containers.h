#pragma once

#include <cstddef>
#include <cstdint>

#include "container/gguf.h"
#include "container/json.h"
#include "container/safetensors.h"

namespace nibble::testing {

// Reads all that a parsed file offers, every byte of every tensor among it, and returns a number
// that depends on it: what the parser let through must be safe to use.
inline uint64_t TouchTensors(const TensorSource& source) {
  uint64_t sum = source.total_bytes();
  for (const SourceTensor& tensor : source.tensors()) {
    sum += tensor.rows() * 3 + tensor.cols() + tensor.ShapeString().size();
    sum += source.Find(tensor.name)->bytes.size();
    for (const std::byte byte : tensor.bytes) sum += std::to_integer<uint64_t>(byte);
  }
  return sum;
}

inline uint64_t TouchGguf(const GgufFile& file) {
  uint64_t sum = TouchTensors(file.tensors()) + file.version() + file.alignment();
  for (const GgufEntry& entry : file.metadata()) {
    sum += entry.ToString(100).size() + entry.TypeString().size();
    sum += file.GetInt(entry.key).has_value() + file.GetDouble(entry.key).has_value();
    sum += file.GetBool(entry.key).has_value() + file.GetString(entry.key).has_value();
    if (const auto values = file.GetStrings(entry.key)) {
      for (const std::string_view value : *values) sum += value.size();
    }
    if (const auto values = file.GetInts(entry.key)) sum += values->size();
    if (const auto values = file.GetFloats(entry.key)) sum += values->size();
    if (const auto values = file.GetBools(entry.key)) sum += values->size();
  }
  return sum + file.CheckIsModel().has_value();
}

inline uint64_t TouchSafetensors(const SafetensorsModel& model) {
  return TouchTensors(model.tensors()) + model.Metadata("format").value_or("").size();
}

}  // namespace nibble::testing
