#include "container/safetensors_writer.h"

#include <fmt/format.h>

#include <iterator>

#include "base/math.h"
#include "container/json_text.h"
#include "container/safetensors.h"

namespace nibble {

void SafetensorsWriter::SetMetadata(std::string_view key, std::string_view value) {
  if (!metadata_.empty()) metadata_ += ',';
  AppendJsonString(key, metadata_);
  metadata_ += ':';
  AppendJsonString(value, metadata_);
}

Status SafetensorsWriter::AddTensor(std::string_view name, std::string_view dtype,
                                    std::span<const uint64_t> shape) {
  const SafetensorsDtype* known = FindSafetensorsDtype(dtype);
  if (known == nullptr) return BadInput("tensor '{}': dtype '{}' is unknown", name, dtype);
  auto bits = std::optional<uint64_t>(known->bits);
  for (const uint64_t dim : shape) {
    bits = CheckedMul(*bits, dim);
    if (!bits) return BadInput("tensor '{}': too many elements", name);
  }
  if (*bits % 8 != 0) return BadInput("tensor '{}': its {} bits fill no bytes", name, *bits);
  if (name == "__metadata__" || !names_.emplace(name).second) {
    return BadInput("two tensors named '{}'", name);
  }
  if (!tensors_.empty()) tensors_ += ',';
  AppendJsonString(name, tensors_);
  fmt::format_to(std::back_inserter(tensors_),
                 R"(:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", dtype,
                 fmt::join(shape, ","), data_bytes_, data_bytes_ + *bits / 8);
  sizes_.push_back(*bits / 8);
  data_bytes_ += *bits / 8;
  return {};
}

Result<TensorStream> SafetensorsWriter::Begin(const std::filesystem::path& path) const {
  NIBBLE_TRY(OutputFile file, OutputFile::Create(path));
  std::string header = "{";
  if (!metadata_.empty()) header += R"("__metadata__":{)" + metadata_ + "}";
  if (!metadata_.empty() && !tensors_.empty()) header += ',';
  header += tensors_ + "}";
  header.resize(RoundUp(header.size(), size_t{8}), ' ');  // the data begins at a multiple of 8
  const uint64_t length = header.size();
  NIBBLE_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(&length, 1))));
  NIBBLE_RETURN_IF_ERROR(file.Write(header));
  return TensorStream(std::move(file), sizes_, 1);
}

}  // namespace nibble
