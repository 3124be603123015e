#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace nibble {

// Codes of 1 to 8 bits in little-endian 32-bit words, the least significant bits first; a code may
// lie across two words (GPTQ's 3 bits: 32 codes in 3 words). Words of one sequence are `stride`
// words apart, so that a sequence can run along either dimension of a matrix.
class PackedCodes {
 public:
  PackedCodes(std::byte* words, size_t stride, int bits)
      : words_(words), stride_(stride), bits_(static_cast<unsigned>(bits)) {}

  // Into words that were zero.
  void Put(size_t index, uint32_t code) {
    const size_t bit = index * bits_;
    const auto shift = static_cast<unsigned>(bit % 32);
    Or(bit / 32, code << shift);
    if (shift + bits_ > 32) Or(bit / 32 + 1, code >> (32 - shift));
  }

 private:
  void Or(size_t word, uint32_t value) {
    std::byte* at = words_ + word * stride_ * sizeof value;
    uint32_t before = 0;
    std::memcpy(&before, at, sizeof before);
    value |= before;
    std::memcpy(at, &value, sizeof value);
  }

  std::byte* words_;
  size_t stride_;
  unsigned bits_;
};

// Reads what PackedCodes writes.
class PackedCodesView {
 public:
  PackedCodesView(const std::byte* words, size_t stride, int bits)
      : words_(words), stride_(stride), bits_(static_cast<unsigned>(bits)) {}

  uint8_t Get(size_t index) const {
    const size_t bit = index * bits_;
    const auto shift = static_cast<unsigned>(bit % 32);
    uint32_t code = Word(bit / 32) >> shift;
    if (shift + bits_ > 32) code |= Word(bit / 32 + 1) << (32 - shift);
    return static_cast<uint8_t>(code & ((1U << bits_) - 1));
  }

  // The first `count` codes, word by word where none lies across two.
  void GetAll(size_t count, uint8_t* out) const {
    const size_t per_word = 32 / bits_;
    size_t i = 0;
    for (size_t w = 0; 32 % bits_ == 0 && i + per_word <= count; ++w) {
      uint32_t word = Word(w);
      for (size_t j = 0; j < per_word; ++j, word >>= bits_) {
        out[i++] = static_cast<uint8_t>(word & ((1U << bits_) - 1));
      }
    }
    for (; i < count; ++i) out[i] = Get(i);
  }

  // Words that `count` codes fill, the last one perhaps in part.
  static constexpr uint64_t Words(uint64_t count, int bits) {
    return (count * static_cast<uint64_t>(bits) + 31) / 32;
  }

 private:
  uint32_t Word(size_t word) const {
    uint32_t value = 0;
    std::memcpy(&value, words_ + word * stride_ * sizeof value, sizeof value);
    return value;
  }

  const std::byte* words_;
  size_t stride_;
  unsigned bits_;
};

// AWQ's order of outputs in a word: nibble i holds output kAwqOrder[i] of eight, and output k lies
// in nibble kAwqNibble[k].
inline constexpr int kAwqOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};
inline constexpr int kAwqNibble[8] = {0, 4, 1, 5, 2, 6, 3, 7};

}  // namespace nibble
