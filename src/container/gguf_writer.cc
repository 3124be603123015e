#include "container/gguf_writer.h"

#include <type_traits>

#include "base/math.h"
#include "container/byte_reader.h"
#include "container/gguf_parser.h"

namespace nibble {
namespace {

constexpr uint64_t kAlignment = 32;
constexpr size_t kMaxRank = 4;

template <class T>
  requires std::is_arithmetic_v<T>
void Put(T value, std::string& out) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void PutString(std::string_view text, std::string& out) {
  Put(uint64_t{text.size()}, out);
  out += text;
}

template <class T>
void PutAll(std::span<const T> values, std::string& out) {
  out.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

}  // namespace

void GgufWriter::Key(std::string_view key, GgufType type) {
  if (!keys_.emplace(key).second) repeated_key_ = key;
  ++entry_count_;
  PutString(key, metadata_);
  Put(static_cast<uint32_t>(type), metadata_);
}

void GgufWriter::ArrayKey(std::string_view key, GgufType element_type, uint64_t count) {
  Key(key, GgufType::kArray);
  Put(static_cast<uint32_t>(element_type), metadata_);
  Put(count, metadata_);
}

void GgufWriter::SetString(std::string_view key, std::string_view value) {
  Key(key, GgufType::kString);
  PutString(value, metadata_);
}
void GgufWriter::SetBool(std::string_view key, bool value) {
  Key(key, GgufType::kBool);
  Put(static_cast<uint8_t>(value), metadata_);
}
void GgufWriter::SetUint32(std::string_view key, uint32_t value) {
  Key(key, GgufType::kUint32);
  Put(value, metadata_);
}
void GgufWriter::SetInt32(std::string_view key, int32_t value) {
  Key(key, GgufType::kInt32);
  Put(value, metadata_);
}
void GgufWriter::SetUint64(std::string_view key, uint64_t value) {
  Key(key, GgufType::kUint64);
  Put(value, metadata_);
}
void GgufWriter::SetFloat32(std::string_view key, float value) {
  Key(key, GgufType::kFloat32);
  Put(value, metadata_);
}

void GgufWriter::SetStrings(std::string_view key, std::span<const std::string_view> values) {
  ArrayKey(key, GgufType::kString, values.size());
  for (const std::string_view value : values) PutString(value, metadata_);
}
void GgufWriter::SetInt32s(std::string_view key, std::span<const int32_t> values) {
  ArrayKey(key, GgufType::kInt32, values.size());
  PutAll(values, metadata_);
}
void GgufWriter::SetFloat32s(std::string_view key, std::span<const float> values) {
  ArrayKey(key, GgufType::kFloat32, values.size());
  PutAll(values, metadata_);
}
void GgufWriter::SetBools(std::string_view key, const std::vector<bool>& values) {
  ArrayKey(key, GgufType::kBool, values.size());
  for (const bool value : values) Put(static_cast<uint8_t>(value), metadata_);
}

Status GgufWriter::Copy(const GgufEntry& entry) {
  if (entry.type == GgufType::kArray && entry.element_type == GgufType::kArray) {
    return BadInput("'{}': arrays of arrays are not copied", entry.key);
  }
  if (entry.type == GgufType::kArray) {
    ArrayKey(entry.key, entry.element_type, entry.count);
  } else {
    Key(entry.key, entry.type);
  }
  if (entry.element_type != GgufType::kString) {
    PutAll(entry.bytes, metadata_);
    return {};
  }
  ByteReader reader(entry.bytes);  // lengths may have another width there
  for (uint64_t i = 0; i < entry.count; ++i) {
    NIBBLE_TRY(const std::string_view text, reader.ReadString(entry.length_bytes, "a string"));
    PutString(text, metadata_);
  }
  return {};
}

Status GgufWriter::AddTensor(std::string_view name, Format format,
                             std::span<const uint64_t> shape) {
  const FormatTraits& traits = TraitsOf(format);
  if (!traits.gguf_type) return BadInput("tensor '{}': GGUF has no type {}", name, traits.name);
  if (shape.empty() || shape.size() > kMaxRank) {
    return BadInput("tensor '{}': {} dimensions, expected 1 to {}", name, shape.size(), kMaxRank);
  }
  if (shape.back() % static_cast<uint64_t>(traits.block_elements) != 0) {
    return BadInput("tensor '{}': rows of {} elements do not divide into {} blocks of {}", name,
                    shape.back(), traits.name, traits.block_elements);
  }
  if (!names_.emplace(name).second) return BadInput("two tensors named '{}'", name);
  PutString(name, tensors_);
  Put(static_cast<uint32_t>(shape.size()), tensors_);
  uint64_t elements = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    Put(shape[i], tensors_);
    const auto product = CheckedMul(elements, shape[i]);
    if (!product) return BadInput("tensor '{}': too many elements", name);
    elements = *product;
  }
  Put(*traits.gguf_type, tensors_);
  Put(data_bytes_, tensors_);
  sizes_.push_back(traits.RowBytes(elements));
  data_bytes_ += RoundUp(sizes_.back(), kAlignment);
  return {};
}

uint64_t GgufWriter::HeaderBytes() const {
  constexpr uint64_t kFixed = 4 + 4 + 8 + 8;
  return RoundUp(kFixed + metadata_.size() + tensors_.size(), kAlignment);
}

Result<TensorStream> GgufWriter::Begin(const std::filesystem::path& path) const {
  if (!repeated_key_.empty()) return BadInput("metadata key '{}' set twice", repeated_key_);
  NIBBLE_TRY(OutputFile file, OutputFile::Create(path));
  std::string header = "GGUF";
  Put(uint32_t{3}, header);
  Put(uint64_t{sizes_.size()}, header);
  Put(entry_count_, header);
  header += metadata_;
  header += tensors_;
  NIBBLE_RETURN_IF_ERROR(file.Write(header));
  const uint64_t begin = RoundUp(file.position(), kAlignment);
  NIBBLE_RETURN_IF_ERROR(file.WriteZeros(begin - file.position()));
  return TensorStream(std::move(file), sizes_, kAlignment);
}

}  // namespace nibble
