#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/result.h"

namespace nibble {

struct ProtobufField {
  uint32_t number = 0;
  uint64_t value = 0;      // of a varint, fixed64 or fixed32
  std::string_view bytes;  // of a length-delimited field

  float AsFloat() const { return std::bit_cast<float>(static_cast<uint32_t>(value)); }
  int64_t AsInt() const { return static_cast<int64_t>(value); }
};

// Walks the fields of one protobuf message, https://protobuf.dev/programming-guides/encoding.
class ProtobufReader {
 public:
  explicit ProtobufReader(std::string_view bytes) : bytes_(bytes) {}
  bool AtEnd() const { return pos_ == bytes_.size(); }

  // Errors: a field that ends behind the message, a wire type that is not in use.
  Result<ProtobufField> Next() {
    NIBBLE_TRY(const uint64_t tag, Varint());
    ProtobufField field;
    field.number = static_cast<uint32_t>(tag >> 3);
    if (field.number == 0) return BadInput("byte {}: not a protobuf field", pos_);
    switch (tag & 7) {
      case 0: {
        NIBBLE_TRY(field.value, Varint());
        return field;
      }
      case 1:
        return Fixed(field, 8);
      case 5:
        return Fixed(field, 4);
      case 2: {
        NIBBLE_TRY(const uint64_t size, Varint());
        if (size > bytes_.size() - pos_) {
          return BadInput("byte {}: a field of {} bytes, but only {} are left", pos_, size,
                          bytes_.size() - pos_);
        }
        field.bytes = bytes_.substr(pos_, size);
        pos_ += size;
        return field;
      }
      default:
        return BadInput("byte {}: protobuf wire type {} is not known", pos_, tag & 7);
    }
  }

 private:
  Result<uint64_t> Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (pos_ == bytes_.size()) return BadInput("the file ends inside a number at byte {}", pos_);
      const auto byte = static_cast<uint8_t>(bytes_[pos_++]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    return BadInput("byte {}: a number has more than 64 bits", pos_);
  }

  Result<ProtobufField> Fixed(ProtobufField field, size_t size) {
    if (size > bytes_.size() - pos_) {
      return BadInput("the file ends inside a number at byte {}", pos_);
    }
    std::memcpy(&field.value, bytes_.data() + pos_, size);
    pos_ += size;
    return field;
  }

  std::string_view bytes_;
  size_t pos_ = 0;
};

}  // namespace nibble
