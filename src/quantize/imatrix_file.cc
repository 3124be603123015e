#include "quantize/imatrix_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "container/byte_reader.h"
#include "container/gguf.h"
#include "container/gguf_writer.h"
#include "container/output_file.h"

namespace nibble {
namespace {

constexpr std::string_view kSums = ".in_sum2";
constexpr std::string_view kCounts = ".counts";

std::vector<float> FloatsOf(std::span<const std::byte> bytes) {
  std::vector<float> floats(bytes.size() / sizeof(float));
  if (!floats.empty()) std::memcpy(floats.data(), bytes.data(), floats.size() * sizeof(float));
  return floats;
}

Result<std::vector<float>> FloatsOf(const SourceTensor& tensor) {
  if (tensor.format != Format::kF32) {
    return BadInput("'{}': expected f32, found {}", tensor.name, tensor.type_name);
  }
  return FloatsOf(tensor.bytes);
}

// Of the sums of a matrix, with its counts.
Result<Imatrix::Entry> EntryOf(const TensorSource& tensors, const SourceTensor& sums) {
  Imatrix::Entry entry;
  entry.name = sums.name.substr(0, sums.name.size() - kSums.size());
  NIBBLE_TRY(entry.sums, FloatsOf(sums));
  const SourceTensor* counts = tensors.Find(entry.name + std::string(kCounts));
  if (counts == nullptr) return BadInput("'{}{}' is missing", entry.name, kCounts);
  NIBBLE_TRY(const std::vector<float> values, FloatsOf(*counts));
  if (values.size() != 1) {
    return BadInput("'{}': expected one count, found {} (experts are not supported)", counts->name,
                    values.size());
  }
  entry.count = values[0];
  return entry;
}

// Counts of a .dat file are signed.
Result<uint32_t> ReadCount(ByteReader& reader, std::string_view what, int32_t least) {
  const size_t at = reader.position();
  NIBBLE_TRY(const int32_t value, reader.Read<int32_t>(what));
  if (value < least) {
    return BadInput("byte {}: {}: expected at least {}, found {}", at, what, least, value);
  }
  return static_cast<uint32_t>(value);
}

Result<Imatrix::Entry> ReadEntry(ByteReader& reader) {
  Imatrix::Entry entry;
  NIBBLE_TRY(entry.name, reader.ReadString(4, "a name"));
  NIBBLE_TRY(const uint32_t calls, ReadCount(reader, "a count of calls", 1));
  NIBBLE_TRY(const uint32_t columns, ReadCount(reader, "a count of columns", 1));
  NIBBLE_TRY(const auto bytes, reader.Take(uint64_t{columns} * sizeof(float), "the values"));
  entry.sums = FloatsOf(bytes);
  entry.count = static_cast<float>(calls);
  return entry;
}

class DatWriter {
 public:
  void Int(uint64_t value) {
    const auto narrow = static_cast<int32_t>(std::min<uint64_t>(value, INT32_MAX));
    Append(&narrow, sizeof narrow);
  }
  void String(std::string_view text) {
    Int(text.size());
    bytes_ += text;
  }
  void Floats(std::span<const float> floats) { Append(floats.data(), floats.size_bytes()); }
  std::string_view bytes() const { return bytes_; }

 private:
  void Append(const void* data, size_t size) {
    bytes_.append(static_cast<const char*>(data), size);
  }
  std::string bytes_;
};

}  // namespace

Result<Imatrix> ParseGgufImatrix(std::span<const std::byte> bytes) {
  NIBBLE_TRY(const GgufFile file, GgufFile::Parse(bytes));
  NIBBLE_TRY(const std::string_view type, file.GetStringOr("general.type", "model"));
  if (type != "imatrix") {
    return BadInput("general.type: expected 'imatrix' (an importance matrix), found '{}'", type);
  }
  Imatrix::Origin origin;
  if (file.Has("imatrix.datasets")) {
    NIBBLE_TRY(const auto texts, file.GetStrings("imatrix.datasets"));
    origin.texts.assign(texts.begin(), texts.end());
  }
  const auto count_of = [&](std::string_view key) -> Result<uint32_t> {
    NIBBLE_TRY(const int64_t value, file.GetIntOr(key, 0));
    if (value < 0 || value > UINT32_MAX) return BadInput("'{}': found {}", key, value);
    return static_cast<uint32_t>(value);
  };
  NIBBLE_TRY(origin.chunks, count_of("imatrix.chunk_count"));
  NIBBLE_TRY(origin.chunk_tokens, count_of("imatrix.chunk_size"));
  Imatrix imatrix;
  imatrix.SetOrigin(std::move(origin));
  for (const SourceTensor& tensor : file.tensors().tensors()) {
    if (!tensor.name.ends_with(kSums)) continue;
    NIBBLE_TRY(Imatrix::Entry entry, EntryOf(file.tensors(), tensor));
    NIBBLE_RETURN_IF_ERROR(imatrix.Add(std::move(entry)));
  }
  if (imatrix.entries().empty()) return BadInput("no tensor's name ends in '{}'", kSums);
  return imatrix;
}

Result<Imatrix> ParseDatImatrix(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  NIBBLE_TRY(const uint32_t count, ReadCount(reader, "the number of matrices", 1));
  Imatrix imatrix;
  for (uint32_t i = 0; i < count; ++i) {
    const auto place = fmt::format("matrix {} of {}", i, count);
    auto entry = ReadEntry(reader);
    if (!entry) return Within(place, entry.error());
    const Status added = imatrix.Add(*std::move(entry));
    if (!added) return Within(place, added.error());
  }
  if (reader.left() == 0) return imatrix;
  Imatrix::Origin origin;
  NIBBLE_TRY(origin.chunks, ReadCount(reader, "the number of chunks", 0));
  if (reader.left() > 0) {
    NIBBLE_TRY(const std::string_view text, reader.ReadString(4, "the name of the text"));
    origin.texts.emplace_back(text);
  }
  if (reader.left() > 0) {
    return BadInput("byte {}: expected the end of the file, {} bytes are left", reader.position(),
                    reader.left());
  }
  imatrix.SetOrigin(std::move(origin));
  return imatrix;
}

Status WriteGgufImatrix(const Imatrix& imatrix, const std::filesystem::path& path) {
  GgufWriter writer;
  writer.SetString("general.type", "imatrix");
  const Imatrix::Origin& origin = imatrix.origin();
  const std::vector<std::string_view> texts(origin.texts.begin(), origin.texts.end());
  writer.SetStrings("imatrix.datasets", texts);
  writer.SetUint32("imatrix.chunk_count", origin.chunks);
  writer.SetUint32("imatrix.chunk_size", origin.chunk_tokens);
  for (const Imatrix::Entry& entry : imatrix.entries()) {
    const uint64_t columns[] = {entry.sums.size()};
    const uint64_t one[] = {1};
    NIBBLE_RETURN_IF_ERROR(
        writer.AddTensor(entry.name + std::string(kSums), Format::kF32, columns));
    NIBBLE_RETURN_IF_ERROR(writer.AddTensor(entry.name + std::string(kCounts), Format::kF32, one));
  }
  NIBBLE_TRY(TensorStream stream, writer.Begin(path));
  for (const Imatrix::Entry& entry : imatrix.entries()) {
    NIBBLE_RETURN_IF_ERROR(stream.Append(std::as_bytes(std::span(entry.sums))));
    NIBBLE_RETURN_IF_ERROR(stream.Append(std::as_bytes(std::span(&entry.count, 1))));
  }
  return stream.Finish();
}

Status WriteDatImatrix(const Imatrix& imatrix, const std::filesystem::path& path) {
  const Imatrix::Origin& origin = imatrix.origin();
  const uint32_t calls = std::max(origin.chunks, uint32_t{1});
  DatWriter writer;
  writer.Int(imatrix.entries().size());
  for (const Imatrix::Entry& entry : imatrix.entries()) {
    std::vector<float> values = entry.sums;
    for (float& value : values) value = value / entry.count * static_cast<float>(calls);
    writer.String(entry.name);
    writer.Int(calls);
    writer.Int(values.size());
    writer.Floats(values);
  }
  writer.Int(calls);
  writer.String(origin.texts.empty() ? "" : std::string_view(origin.texts.front()));
  NIBBLE_TRY(OutputFile file, OutputFile::Create(path));
  NIBBLE_RETURN_IF_ERROR(file.Write(writer.bytes()));
  return file.Commit();
}

}  // namespace nibble
