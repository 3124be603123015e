#include "container/gguf_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <string>

#include "base/math.h"
#include "base/utf8.h"

namespace nibble {
namespace {

constexpr uint64_t kMaxEntries = uint64_t{1} << 20;  // real files: below 100 and below 20,000
constexpr uint64_t kMaxNameBytes = 65535;            // the specification's bound for keys
constexpr int kMaxArrayDepth = 8;
constexpr uint64_t kMaxStrings = uint64_t{1} << 24;  // of an array; real ones: below 2^20
constexpr uint32_t kMaxRank = 4;

std::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string SupportedTypes() {
  std::string names;
  for (const FormatTraits& traits : AllFormats()) {
    if (!traits.gguf_type) continue;
    if (!names.empty()) names += ", ";
    for (const char c : traits.name) names += c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  }
  return names;
}

// What a file that is no GGUF seems to be.
std::string Guess(std::span<const std::byte> bytes) {
  const std::string_view text = AsText(bytes.first(std::min<size_t>(bytes.size(), 64)));
  for (const std::string_view magic : {"lmgg", "fmgg", "tjgg", "algg"}) {
    if (text.starts_with(magic)) return "a GGML file from before GGUF; convert it again";
  }
  if (text.starts_with("version https://git-lfs")) {
    return "a Git LFS pointer: the model itself has not been downloaded";
  }
  if (text.starts_with("PK")) return "a zip archive (a PyTorch checkpoint?)";
  if (text.starts_with("<")) return "an HTML or XML page";
  std::string hex;
  for (const std::byte byte : bytes.first(std::min<size_t>(bytes.size(), 4))) {
    hex += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  }
  return hex.empty() ? "an empty file" : "bytes " + hex;
}

Status CheckName(std::string_view name, std::string_view what) {
  if (name.empty()) return BadInput("{} is empty", what);
  if (name.size() > kMaxNameBytes) {
    return BadInput("{} has {} bytes, more than {}", what, name.size(), kMaxNameBytes);
  }
  if (FindInvalidUtf8(name) != std::string_view::npos) {
    return BadInput("{} is not valid UTF-8", what);
  }
  return {};
}

Result<GgufType> CheckType(uint32_t type) {
  if (type >= kGgufTypeCount) {
    return BadInput("value type {} is unknown (0 to {} are known)", type, kGgufTypeCount - 1);
  }
  return static_cast<GgufType>(type);
}

}  // namespace

size_t GgufScalarBytes(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

Result<std::vector<SourceTensor>> GgufParser::Run(GgufFile& file) {
  NIBBLE_RETURN_IF_ERROR(Header(file));
  NIBBLE_RETURN_IF_ERROR(Metadata(file));
  NIBBLE_RETURN_IF_ERROR(Alignment(file));
  std::vector<SourceTensor> tensors;
  for (uint64_t i = 0; i < tensor_count_; ++i) {
    auto tensor = TensorInfo();
    if (!tensor) return Within(fmt::format("tensor {} of {}", i, tensor_count_), tensor.error());
    tensors.push_back(*tensor);
  }
  NIBBLE_RETURN_IF_ERROR(PlaceTensors(file.alignment_, tensors));
  return tensors;
}

Status GgufParser::Header(GgufFile& file) {
  if (!LooksLikeGguf(bytes_)) {
    return BadInput("not a GGUF file: expected the letters GGUF, found {}", Guess(bytes_));
  }
  NIBBLE_TRY(const auto magic, reader_.Take(4, "the magic"));
  (void)magic;
  NIBBLE_TRY(const uint32_t version, reader_.Read<uint32_t>("the version"));
  if ((version & 0xffffu) == 0 && version != 0) {
    return BadInput("a big-endian GGUF file (version {}): only little-endian files are read",
                    __builtin_bswap32(version));
  }
  if (version < 1 || version > 3) {
    return BadInput("GGUF version {}: versions 1, 2 and 3 are read", version);
  }
  file.version_ = version;
  width_ = version == 1 ? 4 : 8;
  NIBBLE_TRY(tensor_count_, reader_.ReadLength(width_, "the number of tensors"));
  NIBBLE_TRY(entry_count_, reader_.ReadLength(width_, "the number of metadata entries"));
  // The shortest entry: a name of one letter, a type, one byte. The shortest tensor: a name of one
  // letter, rank, type, offset.
  const auto width = static_cast<uint64_t>(width_);
  if (entry_count_ > kMaxEntries || entry_count_ > reader_.left() / (width + 6)) {
    return BadInput("{} metadata entries claimed, {} bytes are left", entry_count_, reader_.left());
  }
  if (tensor_count_ > kMaxEntries || tensor_count_ > reader_.left() / (width + 17)) {
    return BadInput("{} tensors claimed, {} bytes are left", tensor_count_, reader_.left());
  }
  return {};
}

Status GgufParser::Metadata(GgufFile& file) {
  for (uint64_t i = 0; i < entry_count_; ++i) {
    auto entry = Entry();
    if (!entry) {
      return Within(fmt::format("metadata entry {} of {}", i, entry_count_), entry.error());
    }
    file.metadata_.push_back(*entry);
  }
  const auto key = [&](uint32_t i) { return file.metadata_[i].key; };
  file.by_key_.resize(file.metadata_.size());
  std::iota(file.by_key_.begin(), file.by_key_.end(), 0u);
  std::ranges::sort(file.by_key_, {}, key);
  const auto twice = std::ranges::adjacent_find(file.by_key_, {}, key);
  if (twice != file.by_key_.end()) return BadInput("metadata key '{}' appears twice", key(*twice));
  return {};
}

Result<GgufEntry> GgufParser::Entry() {
  GgufEntry entry;
  NIBBLE_TRY(entry.key, reader_.ReadString(width_, "a key"));
  NIBBLE_RETURN_IF_ERROR(CheckName(entry.key, "the key"));
  const auto value = [&]() -> Status {
    NIBBLE_TRY(const uint32_t type, reader_.Read<uint32_t>("the value type"));
    NIBBLE_TRY(entry.type, CheckType(type));
    entry.element_type = entry.type;
    entry.length_bytes = static_cast<uint8_t>(width_);
    const size_t begin = reader_.position();
    if (entry.type == GgufType::kArray) return SkipArray(&entry, 1);
    if (entry.type == GgufType::kString) {
      NIBBLE_TRY(const auto text, reader_.ReadString(width_, "a string"));
      (void)text;
    } else {
      NIBBLE_TRY(const auto scalar, reader_.Take(GgufScalarBytes(entry.type), "a value"));
      if (entry.type == GgufType::kBool) NIBBLE_RETURN_IF_ERROR(CheckBools(scalar));
    }
    entry.bytes = bytes_.subspan(begin, reader_.position() - begin);
    return {};
  };
  const Status read = value();
  if (!read) return Within(fmt::format("'{}'", entry.key), read.error());
  return entry;
}

// Checks an array and steps over it; fills the entry for the outermost one.
Status GgufParser::SkipArray(GgufEntry* entry, int depth) {
  if (depth > kMaxArrayDepth) return BadInput("arrays nested more than {} deep", kMaxArrayDepth);
  NIBBLE_TRY(const uint32_t raw_type, reader_.Read<uint32_t>("the type of an array"));
  NIBBLE_TRY(const GgufType type, CheckType(raw_type));
  NIBBLE_TRY(const uint64_t count, reader_.ReadLength(width_, "the length of an array"));
  const size_t begin = reader_.position();
  // The least an element takes: an empty string is a length, an empty array a type and a length.
  const size_t scalar = GgufScalarBytes(type);
  const size_t least =
      scalar > 0 ? scalar : static_cast<size_t>(width_) + (type == GgufType::kArray ? 4 : 0);
  if (count > reader_.left() / least) {
    return BadInput("an array of {} {} values claimed, {} bytes are left", count,
                    GgufTypeName(type), reader_.left());
  }
  if (scalar == 0 && count > kMaxStrings) {
    return BadInput("an array of {} values of type {}, more than {}", count, GgufTypeName(type),
                    kMaxStrings);
  }
  if (scalar > 0) {
    NIBBLE_TRY(const auto elements, reader_.Take(count * scalar, "an array"));
    if (type == GgufType::kBool) NIBBLE_RETURN_IF_ERROR(CheckBools(elements));
  } else if (type == GgufType::kString) {
    for (uint64_t i = 0; i < count; ++i) {
      NIBBLE_TRY(const auto text, reader_.ReadString(width_, "a string of an array"));
      (void)text;
    }
  } else {
    for (uint64_t i = 0; i < count; ++i) NIBBLE_RETURN_IF_ERROR(SkipArray(nullptr, depth + 1));
  }
  if (entry != nullptr) {
    entry->element_type = type;
    entry->count = count;
    entry->bytes = bytes_.subspan(begin, reader_.position() - begin);
  }
  return {};
}

Status GgufParser::CheckBools(std::span<const std::byte> bytes) const {
  for (const std::byte byte : bytes) {
    if (std::to_integer<unsigned>(byte) > 1) {
      return BadInput("a bool of value {}", std::to_integer<unsigned>(byte));
    }
  }
  return {};
}

Status GgufParser::Alignment(GgufFile& file) {
  NIBBLE_TRY(const int64_t alignment, file.GetIntOr("general.alignment", 32));
  if (alignment < 1 || !std::has_single_bit(static_cast<uint64_t>(alignment)) ||
      alignment > std::numeric_limits<uint32_t>::max()) {
    return BadInput("'general.alignment': expected a power of two, found {}", alignment);
  }
  file.alignment_ = static_cast<uint64_t>(alignment);
  return {};
}

Result<SourceTensor> GgufParser::TensorInfo() {
  SourceTensor tensor;
  tensor.file = file_index_;
  NIBBLE_TRY(tensor.name, reader_.ReadString(width_, "a tensor's name"));
  NIBBLE_RETURN_IF_ERROR(CheckName(tensor.name, "the name"));
  const auto rest = [&]() -> Status {
    NIBBLE_TRY(const uint32_t rank, reader_.Read<uint32_t>("the number of dimensions"));
    if (rank > kMaxRank) return BadInput("{} dimensions, at most {} are allowed", rank, kMaxRank);
    tensor.rank = static_cast<int>(rank);
    uint64_t elements = 1;
    for (uint32_t i = 0; i < rank; ++i) {  // innermost first
      NIBBLE_TRY(const uint64_t dim, reader_.ReadLength(width_, "a dimension"));
      const auto product = CheckedMul(elements, dim);
      if (dim == 0 || !product || *product > (uint64_t{1} << 56)) {
        return BadInput("dimension {} is {}: no tensor has that size", i, dim);
      }
      elements = *product;
      tensor.shape[rank - 1 - i] = dim;
    }
    NIBBLE_TRY(const uint32_t type, reader_.Read<uint32_t>("the tensor type"));
    const std::optional<Format> format = FormatFromGguf(type);
    if (!format) {
      const std::string_view name = UnsupportedGgufTypeName(type);
      return BadInput("tensor type {} is not supported (supported: {})",
                      name.empty() ? fmt::format("{}", type) : std::string(name), SupportedTypes());
    }
    const FormatTraits& traits = TraitsOf(*format);
    tensor.format = format;
    tensor.type_name = traits.name;
    if (tensor.cols() % static_cast<uint64_t>(traits.block_elements) != 0) {
      return BadInput("rows of {} elements do not divide into {} blocks of {}", tensor.cols(),
                      traits.name, traits.block_elements);
    }
    NIBBLE_TRY(const uint64_t offset, reader_.Read<uint64_t>("the offset"));
    offsets_.push_back(offset);
    sizes_.push_back(traits.RowBytes(elements));
    return {};
  };
  const Status read = rest();
  if (!read) return Within(fmt::format("'{}'", tensor.name), read.error());
  return tensor;
}

// Gives the tensors their bytes, once all the table has been read and the data's begin is known.
Status GgufParser::PlaceTensors(uint64_t alignment, std::vector<SourceTensor>& tensors) {
  if (tensors.empty()) return {};
  const uint64_t begin = RoundUp(static_cast<uint64_t>(reader_.position()), alignment);
  const uint64_t size = begin <= bytes_.size() ? bytes_.size() - begin : 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const uint64_t offset = offsets_[i];
    if (offset % alignment != 0) {
      return BadInput("tensor '{}': offset {} is not a multiple of the alignment {}",
                      tensors[i].name, offset, alignment);
    }
    const auto end = CheckedAdd(offset, sizes_[i]);
    if (!end || *end > size) {
      return BadInput(
          "tensor '{}': {} bytes at offset {} do not lie in the file's {} bytes of data (is the "
          "download complete?)",
          tensors[i].name, sizes_[i], offset, size);
    }
    tensors[i].bytes = bytes_.subspan(begin + offset, sizes_[i]);
  }
  return CheckOverlaps(tensors);
}

Status GgufParser::CheckOverlaps(const std::vector<SourceTensor>& tensors) {
  std::vector<const SourceTensor*> order;
  order.reserve(tensors.size());
  for (const SourceTensor& tensor : tensors) order.push_back(&tensor);
  std::ranges::sort(order, {}, [](const SourceTensor* tensor) { return tensor->bytes.data(); });
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i]->bytes.data() < order[i - 1]->bytes.data() + order[i - 1]->bytes.size()) {
      return BadInput("tensors '{}' and '{}' overlap", order[i - 1]->name, order[i]->name);
    }
  }
  return {};
}

}  // namespace nibble
