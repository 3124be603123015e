#include "container/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "container/gguf_parser.h"
#include "container/shard_name.h"

namespace nibble {
bool LooksLikeGguf(std::span<const std::byte> bytes) {
  constexpr std::string_view kMagic = "GGUF";
  return bytes.size() >= kMagic.size() &&
         std::string_view(reinterpret_cast<const char*>(bytes.data()), kMagic.size()) == kMagic;
}

Result<GgufFile> GgufFile::Parse(std::span<const std::byte> bytes) try {
  GgufFile file;
  file.file_bytes_ = bytes.size();
  NIBBLE_TRY(auto tensors, GgufParser(bytes, 0).Run(file));
  NIBBLE_TRY(file.tensors_, TensorSource::Build(std::move(tensors)));
  return file;
} catch (const std::bad_alloc&) {
  return Fail(ErrorKind::kNoRoom, "no memory for the tables of a GGUF file");
}

Result<GgufFile> GgufFile::Open(const std::filesystem::path& path) try {
  NIBBLE_TRY(MappedFile mapped, MappedFile::Open(path));
  auto file = Parse(mapped.bytes());
  if (!file) return Within(path.string(), file.error());
  const Result<int64_t> shards = file->GetIntOr("split.count", 1);
  if (!shards) return Within(path.string(), shards.error());
  if (*shards > 1) return GgufParser::OpenSplit(path);
  file->files_.push_back(std::move(mapped));
  return file;
} catch (const std::bad_alloc&) {
  return Fail(ErrorKind::kNoRoom, "{}: no memory for the tables of a GGUF file", path.string());
}

Result<GgufFile> GgufParser::OpenSplit(const std::filesystem::path& path) {
  constexpr std::string_view kExtension = ".gguf";
  const auto name = ParseShardName(path.filename().string(), kExtension);
  if (!name) {
    return BadInput("{}: one file of a split model, expected a name like model-00001-of-00005.gguf",
                    path.string());
  }
  GgufFile model;
  std::vector<SourceTensor> tensors;
  for (int number = 1; number <= name->count; ++number) {
    const auto shard_path = path.parent_path() / name->File(number, kExtension);
    if (std::error_code ignored; !std::filesystem::exists(shard_path, ignored)) {
      return BadInput("{}: file {} of {} of this split model is missing", shard_path.string(),
                      number, name->count);
    }
    NIBBLE_TRY(MappedFile mapped, MappedFile::Open(shard_path));
    GgufFile shard;
    auto found = GgufParser(mapped.bytes(), number - 1).Run(shard);
    if (!found) return Within(shard_path.string(), found.error());
    const Result<int64_t> no = shard.GetInt("split.no");
    const Result<int64_t> count = shard.GetInt("split.count");
    if (!no || !count || *no != number - 1 || *count != name->count) {
      return BadInput("{}: expected split.no {} and split.count {}, found {} and {}",
                      shard_path.string(), number - 1, name->count, no.value_or(-1),
                      count.value_or(-1));
    }
    tensors.insert(tensors.end(), found->begin(), found->end());
    std::vector<MappedFile> files = std::move(model.files_);
    const uint64_t file_bytes = model.file_bytes_ + mapped.bytes().size();
    files.push_back(std::move(mapped));
    if (number == 1) model = std::move(shard);
    model.files_ = std::move(files);
    model.file_bytes_ = file_bytes;
  }
  const Result<int64_t> expected =
      model.GetIntOr("split.tensors.count", static_cast<int64_t>(tensors.size()));
  if (!expected) return Within(path.string(), expected.error());
  if (*expected != static_cast<int64_t>(tensors.size())) {
    return BadInput("{}: the split model has {} tensors, split.tensors.count says {}",
                    path.string(), tensors.size(), *expected);
  }
  auto source = TensorSource::Build(std::move(tensors));
  if (!source) return Within(path.string(), source.error());
  model.tensors_ = *std::move(source);
  return model;
}

const GgufEntry* GgufFile::Find(std::string_view key) const {
  const auto found =
      std::ranges::lower_bound(by_key_, key, {}, [&](uint32_t i) { return metadata_[i].key; });
  if (found == by_key_.end() || metadata_[*found].key != key) return nullptr;
  return &metadata_[*found];
}

Status GgufFile::CheckIsModel() const {
  NIBBLE_TRY(const std::string_view type, GetStringOr("general.type", "model"));
  if (type == "adapter" || Has("adapter.type")) {
    return BadInput("a LoRA adapter, not a model: give the model it was trained for");
  }
  NIBBLE_TRY(const std::string_view architecture, GetStringOr("general.architecture", ""));
  if (type == "mmproj" || type == "clip-vision" || architecture == "clip") {
    return BadInput("an image projector (mmproj) of a multimodal model, not a language model");
  }
  if (type == "imatrix") return BadInput("an importance matrix, not a model");
  if (architecture == "controlvector") return BadInput("a control vector, not a model");
  if (architecture.empty()) return BadInput("'general.architecture' is missing");
  if (tensors_.tensors().empty()) {
    return BadInput("a vocabulary of architecture '{}' without weights: no tensors", architecture);
  }
  return {};
}

}  // namespace nibble
