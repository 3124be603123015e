#include "quantize/imatrix.h"

#include <algorithm>
#include <cmath>

#include "container/gguf.h"
#include "platform/memory.h"
#include "quantize/imatrix_file.h"

namespace nibble {

Result<Imatrix> Imatrix::Read(const std::filesystem::path& path) {
  NIBBLE_TRY(const MappedFile file, MappedFile::Open(path));
  auto read = Parse(file.bytes());
  if (!read) return Within(path.string(), read.error());
  return read;
}

Result<Imatrix> Imatrix::Parse(std::span<const std::byte> bytes) {
  return LooksLikeGguf(bytes) ? ParseGgufImatrix(bytes) : ParseDatImatrix(bytes);
}

Status Imatrix::Write(const std::filesystem::path& path) const {
  return path.extension() == ".dat" ? WriteDatImatrix(*this, path) : WriteGgufImatrix(*this, path);
}

Status Imatrix::Add(Entry entry) {
  constexpr size_t kMaxName = 512;
  if (entry.name.empty() || entry.name.size() > kMaxName) {
    return BadInput("importance matrix: expected names of 1 to {} bytes, found one of {}", kMaxName,
                    entry.name.size());
  }
  if (entry.sums.empty()) return BadInput("'{}': no columns", entry.name);
  if (!(entry.count > 0) || !std::isfinite(entry.count)) {
    return BadInput("'{}': expected a count above 0, found {}", entry.name, entry.count);
  }
  for (size_t i = 0; i < entry.sums.size(); ++i) {
    if (!(entry.sums[i] >= 0) || !std::isfinite(entry.sums[i])) {
      return BadInput("'{}' column {}: expected a finite sum of squares, found {}", entry.name, i,
                      entry.sums[i]);
    }
  }
  const auto place = std::ranges::lower_bound(entries_, entry.name, {}, &Entry::name);
  if (place != entries_.end() && place->name == entry.name) {
    return BadInput("'{}' is there twice", entry.name);
  }
  entries_.insert(place, std::move(entry));
  return {};
}

const Imatrix::Entry* Imatrix::Find(std::string_view name) const {
  const auto place = std::ranges::lower_bound(entries_, name, {}, &Entry::name);
  return place != entries_.end() && place->name == name ? &*place : nullptr;
}

Result<std::vector<float>> Imatrix::ImportanceOf(std::string_view name, size_t columns) const {
  const Entry* entry = Find(name);
  if (entry == nullptr) return std::vector<float>();
  if (entry->sums.size() != columns) {
    return BadInput("importance matrix: '{}' has {} columns in the model, found {}", name, columns,
                    entry->sums.size());
  }
  std::vector<float> importance = entry->sums;
  for (float& value : importance) value /= entry->count;
  float least = 0;
  for (const float value : importance) {
    if (value > 0 && (least == 0 || value < least)) least = value;
  }
  if (least == 0) return std::vector<float>();
  for (float& value : importance) value = std::max(value, least);
  return importance;
}

}  // namespace nibble
