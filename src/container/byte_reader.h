#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "base/result.h"

namespace nibble {

static_assert(std::endian::native == std::endian::little);

// Reads a file's bytes in order; every read is checked against what is left. Little-endian.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t position() const { return position_; }
  size_t left() const { return bytes_.size() - position_; }

  // `what` names the thing in the message: "the version".
  Result<std::span<const std::byte>> Take(uint64_t count, std::string_view what) {
    if (count > left()) {
      return BadInput("byte {}: {} needs {} bytes, {} are left", position_, what, count, left());
    }
    const auto taken = bytes_.subspan(position_, static_cast<size_t>(count));
    position_ += static_cast<size_t>(count);
    return taken;
  }

  template <class T>
    requires std::is_arithmetic_v<T>
  Result<T> Read(std::string_view what) {
    NIBBLE_TRY(const auto taken, Take(sizeof(T), what));
    T value;
    std::memcpy(&value, taken.data(), sizeof(T));
    return value;
  }

  // A length or count: 4 or 8 bytes wide.
  Result<uint64_t> ReadLength(int width, std::string_view what) {
    if (width == 8) return Read<uint64_t>(what);
    NIBBLE_TRY(const uint32_t length, Read<uint32_t>(what));
    return uint64_t{length};
  }

  // A length and that many bytes.
  Result<std::string_view> ReadString(int length_width, std::string_view what) {
    NIBBLE_TRY(const uint64_t length, ReadLength(length_width, what));
    NIBBLE_TRY(const auto taken, Take(length, what));
    return std::string_view(reinterpret_cast<const char*>(taken.data()), taken.size());
  }

 private:
  std::span<const std::byte> bytes_;
  size_t position_ = 0;
};

}  // namespace nibble
