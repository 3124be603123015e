#pragma once

#include <cstddef>
#include <cstring>

namespace nibble {

// Walks the blocks of a row at any alignment: the traits' decode and encode in terms of one block.
template <class Block, size_t kElements, class DecodeBlock>
void DecodeBlocks(const std::byte* src, float* dst, size_t count, DecodeBlock decode) {
  for (size_t i = 0; i + kElements <= count; i += kElements, src += sizeof(Block)) {
    Block block;
    std::memcpy(&block, src, sizeof(Block));
    decode(block, dst + i);
  }
}

template <class Block, size_t kElements, class EncodeBlock>
void EncodeBlocks(const float* src, std::byte* dst, size_t count, EncodeBlock encode) {
  for (size_t i = 0; i + kElements <= count; i += kElements, dst += sizeof(Block)) {
    const Block block = encode(src + i);
    std::memcpy(dst, &block, sizeof(Block));
  }
}

}  // namespace nibble
