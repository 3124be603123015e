#include "container/safetensors.h"

#include <fmt/format.h>

#include <new>

#include "container/safetensors_parser.h"
#include "container/shard_name.h"

namespace nibble {
namespace {

constexpr SafetensorsDtype kDtypes[] = {
    {"F32", 32, Format::kF32},
    {"F16", 16, Format::kF16},
    {"BF16", 16, Format::kBF16},
    {"F8_E4M3", 8, Format::kF8E4M3},
    {"F8_E5M2", 8, Format::kF8E5M2},
    {"F64", 64, {}},
    {"I64", 64, {}},
    {"I32", 32, {}},
    {"I16", 16, {}},
    {"I8", 8, {}},
    {"U64", 64, {}},
    {"U32", 32, {}},
    {"U16", 16, {}},
    {"U8", 8, {}},
    {"BOOL", 8, {}},
    {"C64", 64, {}},
    {"F8_E8M0", 8, {}},
    {"F8_E4M3FNUZ", 8, {}},
    {"F8_E5M2FNUZ", 8, {}},
    {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},
    {"F4", 4, {}},
};

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kFileName = "model.safetensors";

}  // namespace

std::span<const SafetensorsDtype> SafetensorsDtypes() { return kDtypes; }

const SafetensorsDtype* FindSafetensorsDtype(std::string_view name) {
  for (const SafetensorsDtype& dtype : kDtypes) {
    if (dtype.name == name) return &dtype;
  }
  return nullptr;
}

Status RefuseAdapterFolder(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "adapter_config.json";
  if (std::error_code ignored; !std::filesystem::exists(path, ignored)) return {};
  NIBBLE_TRY(const JsonDocument document, JsonDocument::ReadFile(path.string()));
  const auto base = document.root().GetStringOr("base_model_name_or_path", "not named");
  return BadInput("{}: a LoRA adapter, not a model: give the model it was trained for ({})",
                  folder.string(), base.value_or("not named"));
}

Result<SafetensorsModel> SafetensorsModel::Open(const std::filesystem::path& path) try {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    if (std::filesystem::exists(path / kIndexName, ignored)) {
      return SafetensorsParser::OpenIndex(path / kIndexName);
    }
    if (std::filesystem::exists(path / kFileName, ignored)) {
      return SafetensorsParser::OpenFile(path / kFileName);
    }
    NIBBLE_RETURN_IF_ERROR(RefuseAdapterFolder(path));
    return BadInput("{}: expected {} or {} in this folder", path.string(), kIndexName, kFileName);
  }
  // One shard of several: its index opens all.
  if (const auto shard = ParseShardName(path.filename().string(), ".safetensors")) {
    const auto index = path.parent_path() / (shard->prefix + ".safetensors.index.json");
    if (std::filesystem::exists(index, ignored)) return SafetensorsParser::OpenIndex(index);
  }
  if (path.extension() == ".json") return SafetensorsParser::OpenIndex(path);
  return SafetensorsParser::OpenFile(path);
} catch (const std::bad_alloc&) {
  return Fail(ErrorKind::kNoRoom, "{}: no memory for the tables of a safetensors model",
              path.string());
}

Result<SafetensorsModel> SafetensorsModel::Parse(std::span<const std::byte> bytes) try {
  SafetensorsModel model;
  std::vector<SourceTensor> tensors;
  NIBBLE_RETURN_IF_ERROR(SafetensorsParser::AddFile(bytes, 0, model, tensors));
  NIBBLE_TRY(model.tensors_, TensorSource::Build(std::move(tensors)));
  return model;
} catch (const std::bad_alloc&) {
  return Fail(ErrorKind::kNoRoom, "no memory for the tables of a safetensors file");
}

std::optional<std::string_view> SafetensorsModel::Metadata(std::string_view key) const {
  if (headers_.empty()) return std::nullopt;
  const std::optional<JsonValue> metadata = headers_.front().root().Find("__metadata__");
  if (!metadata) return std::nullopt;
  const std::optional<JsonValue> value = metadata->Find(key);
  if (!value || !value->is_string()) return std::nullopt;
  return *value->AsString();
}

}  // namespace nibble
