#include "container/safetensors_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/math.h"
#include "container/gguf.h"

namespace nibble {
namespace {

// The reference implementation's bound on a header.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr JsonLimits kHeaderLimits = {
    .max_bytes = kMaxHeaderBytes, .max_values = size_t{4} << 20, .max_depth = 8};

std::string DtypeNames() {
  std::string names;
  for (const SafetensorsDtype& dtype : SafetensorsDtypes()) {
    names += (names.empty() ? "" : ", ") + std::string(dtype.name);
  }
  return names;
}

Result<JsonDocument> ParseHeader(std::span<const std::byte> bytes) {
  if (LooksLikeGguf(bytes)) return BadInput("a GGUF file, expected safetensors");
  if (bytes.size() < 8) {
    return BadInput("{} bytes: too short for a safetensors file", bytes.size());
  }
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  if (length > bytes.size() - 8 || length > kMaxHeaderBytes) {
    return BadInput("a header of {} bytes claimed, the file has {} (no safetensors, or cut short)",
                    length, bytes.size());
  }
  const auto* text = reinterpret_cast<const char*>(bytes.data()) + 8;
  if (length == 0 || *text != '{') return BadInput("the header does not begin with '{{'");
  auto header = JsonDocument::Parse(std::string(text, length), kHeaderLimits);
  if (!header) return Within("the header", header.error());
  return header;
}

// Shape and number of elements.
Result<uint64_t> ReadShape(const JsonValue& entry, SourceTensor& tensor) {
  NIBBLE_TRY(const JsonValue value, entry.Get("shape"));
  NIBBLE_TRY(const JsonArray shape, value.AsArray());
  if (shape.size() > SourceTensor::kMaxRank) {
    return BadInput("{} dimensions, at most {} are read", shape.size(), SourceTensor::kMaxRank);
  }
  uint64_t elements = 1;
  for (const JsonValue element : shape) {
    NIBBLE_TRY(const int64_t dim, element.AsInt());
    const auto product = CheckedMul(elements, static_cast<uint64_t>(dim));
    if (dim < 0 || !product || *product > (uint64_t{1} << 56)) {
      return BadInput("dimension {} is {}: no tensor has that size", tensor.rank, dim);
    }
    elements = *product;
    tensor.shape[static_cast<size_t>(tensor.rank++)] = static_cast<uint64_t>(dim);
  }
  return elements;
}

Result<SourceTensor> ReadTensor(const JsonValue& entry, std::span<const std::byte> data) {
  SourceTensor tensor;
  NIBBLE_TRY(const std::string_view dtype_name, entry.GetString("dtype"));
  const SafetensorsDtype* dtype = FindSafetensorsDtype(dtype_name);
  if (dtype == nullptr) {
    return BadInput("dtype '{}' is unknown (known: {})", dtype_name, DtypeNames());
  }
  tensor.type_name = dtype->name;
  tensor.format = dtype->format;
  NIBBLE_TRY(const uint64_t elements, ReadShape(entry, tensor));
  NIBBLE_TRY(const JsonValue offsets, entry.Get("data_offsets"));
  NIBBLE_TRY(const JsonArray pair, offsets.AsArray());
  if (pair.size() != 2)
    return BadInput("'data_offsets': expected 2 numbers, found {}", pair.size());
  auto at = pair.begin();
  NIBBLE_TRY(const int64_t begin, (*at).AsInt());
  ++at;
  NIBBLE_TRY(const int64_t end, (*at).AsInt());
  if (begin < 0 || end < begin || static_cast<uint64_t>(end) > data.size()) {
    return BadInput("bytes {} to {} do not lie in the file's {} bytes of data", begin, end,
                    data.size());
  }
  const uint64_t bits = elements * static_cast<uint64_t>(dtype->bits);
  if (bits % 8 != 0 || bits / 8 != static_cast<uint64_t>(end - begin)) {
    return BadInput("{} of shape {} needs {} bytes, data_offsets give {}", dtype->name,
                    tensor.ShapeString(), CeilDiv<uint64_t>(bits, 8), end - begin);
  }
  tensor.bytes = data.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  return tensor;
}

// The tensors must tile the data: no overlaps, no holes.
Status CheckTiling(std::span<const SourceTensor> tensors, std::span<const std::byte> data) {
  std::vector<const SourceTensor*> order;
  order.reserve(tensors.size());
  for (const SourceTensor& tensor : tensors) order.push_back(&tensor);
  // An empty tensor lies before the one that begins at its place.
  std::ranges::sort(order, {}, [](const SourceTensor* tensor) {
    return std::pair(tensor->bytes.data(), tensor->bytes.size());
  });
  const std::byte* end = data.data();
  for (const SourceTensor* tensor : order) {
    if (tensor->bytes.data() != end) {
      return BadInput("tensor '{}' begins at byte {} of the data, expected {} ({})", tensor->name,
                      tensor->bytes.data() - data.data(), end - data.data(),
                      tensor->bytes.data() < end ? "an overlap" : "a hole");
    }
    end += tensor->bytes.size();
  }
  if (end != data.data() + data.size()) {
    return BadInput("{} bytes after the last tensor", data.data() + data.size() - end);
  }
  return {};
}

}  // namespace

Status SafetensorsParser::AddFile(std::span<const std::byte> bytes, int file_index,
                                  SafetensorsModel& model, std::vector<SourceTensor>& tensors) {
  NIBBLE_TRY(JsonDocument header, ParseHeader(bytes));
  const size_t first = tensors.size();
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  const auto data = bytes.subspan(8 + static_cast<size_t>(length));
  NIBBLE_TRY(const JsonObject entries, header.root().AsObject());
  for (const auto& [name, entry] : entries) {
    if (name == "__metadata__") continue;
    auto tensor = ReadTensor(entry, data);
    if (!tensor) return Within(fmt::format("tensor '{}'", name), tensor.error());
    tensor->name = name;
    tensor->file = file_index;
    tensors.push_back(*tensor);
  }
  NIBBLE_RETURN_IF_ERROR(CheckTiling(std::span(tensors).subspan(first), data));
  model.headers_.push_back(std::move(header));
  model.file_bytes_ += bytes.size();
  return {};
}

Result<SafetensorsModel> SafetensorsParser::OpenFile(const std::filesystem::path& path) {
  SafetensorsModel model;
  std::vector<SourceTensor> tensors;
  NIBBLE_TRY(MappedFile mapped, MappedFile::Open(path));
  const auto add = [&]() -> Status {
    NIBBLE_RETURN_IF_ERROR(AddFile(mapped.bytes(), 0, model, tensors));
    NIBBLE_TRY(model.tensors_, TensorSource::Build(std::move(tensors)));
    return {};
  };
  const Status added = add();
  if (!added) return Within(path.string(), added.error());
  model.files_.push_back(std::move(mapped));
  return model;
}

Result<SafetensorsModel> SafetensorsParser::OpenIndex(const std::filesystem::path& path) {
  NIBBLE_TRY(const JsonDocument index, JsonDocument::ReadFile(path.string()));
  const auto read_map = [&]() -> Result<JsonObject> {
    NIBBLE_TRY(const JsonValue map, index.root().Get("weight_map"));
    return map.AsObject();
  };
  const Result<JsonObject> map = read_map();
  if (!map) return Within(path.string(), map.error());

  SafetensorsModel model;
  std::vector<SourceTensor> tensors;
  std::vector<std::string> shards;  // in the order of their names, as the references load them
  for (const auto& [name, value] : *map) {
    const Result<std::string_view> shard = value.AsString();
    if (!shard) return Within(fmt::format("{}: '{}'", path.string(), name), shard.error());
    if (shard->find('/') != std::string_view::npos || *shard == "..") {
      return BadInput("{}: '{}' names '{}', expected a file of the same folder", path.string(),
                      name, *shard);
    }
    if (shards.empty() || shards.back() != *shard) shards.emplace_back(*shard);
  }
  std::ranges::sort(shards);
  shards.erase(std::ranges::unique(shards).begin(), shards.end());
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::filesystem::path shard = path.parent_path() / shards[i];
    if (std::error_code ignored; !std::filesystem::exists(shard, ignored)) {
      return BadInput("{}: the file '{}' that the index names is missing", path.string(),
                      shards[i]);
    }
    NIBBLE_TRY(MappedFile mapped, MappedFile::Open(shard));
    const Status added = AddFile(mapped.bytes(), static_cast<int>(i), model, tensors);
    if (!added) return Within(shard.string(), added.error());
    model.files_.push_back(std::move(mapped));
  }
  auto source = TensorSource::Build(std::move(tensors));
  if (!source) return Within(path.string(), source.error());
  model.tensors_ = *std::move(source);
  for (const auto& [name, value] : *map) {
    const SourceTensor* tensor = model.tensors_.Find(name);
    const std::string_view shard = value.AsString().value_or("");
    if (tensor == nullptr || shards[static_cast<size_t>(tensor->file)] != shard) {
      return BadInput("{}: tensor '{}' is not in '{}', where the index says", path.string(), name,
                      shard);
    }
  }
  return model;
}

}  // namespace nibble
