#pragma once

// Codes of sealed blocks (format/kv_format.h) as bytes for integer products, four steps of the
// reduction per lane. `quad`: four channels (keys) or four tokens (values); a raw vector holds
// kPack of them, quad = raw index · kPack + s. Keys decode to code + 2^kLog2Zero, at most kMaxCode
// (simd/int_dot.h); values to signed bytes.
#include <cstring>

#include "format/kv_format.h"
#include "kernels/simd/attention_lanes.h"

namespace nibble::NIBBLE_ISA_NS {
namespace {

NIBBLE_INLINE int32_t WordAt(const uint8_t* p) {
  int32_t word = 0;
  __builtin_memcpy(&word, p, sizeof word);
  return word;
}

struct Int8Codes {
  static constexpr int kPack = 1;
  static constexpr int kMaxCode = 255;
  static constexpr int kLog2Zero = 7;
  static constexpr bool kPerToken = true;
  static constexpr bool kSmallValues = false;  // within ±8
  NIBBLE_INLINE U8x64 Key(U8x64 raw, int, const uint8_t*) { return raw; }
  NIBBLE_INLINE U8x64 Value(U8x64 raw, int, const uint8_t*) { return raw; }
};

struct Int4Codes {
  static constexpr int kPack = 2;
  static constexpr int kMaxCode = 15;
  static constexpr int kLog2Zero = 3;
  static constexpr bool kPerToken = true;
  static constexpr bool kSmallValues = true;
  NIBBLE_INLINE U8x64 Key(U8x64 raw, int s, const uint8_t*) {
    return And(s == 0 ? raw : ShiftRight(raw, 4), 15);
  }
  NIBBLE_INLINE U8x64 Value(U8x64 raw, int s, const uint8_t* side) {
    return AddBytes(Key(raw, s, side), SplatBytes(0xf8f8f8f8U));
  }
};

// side: 16 bytes of the quad.
struct Kivi2Codes {
  static constexpr int kPack = 4;
  static constexpr int kMaxCode = 255;
  static constexpr int kLog2Zero = 7;
  static constexpr bool kPerToken = false;
  static constexpr bool kSmallValues = false;
  NIBBLE_INLINE U8x64 Key(U8x64 raw, int s, const uint8_t* side) {
    const U8x64 code = And(s == 0 ? raw : ShiftRight(raw, 2 * s), 3);
    return Lookup(side, Or(code, SplatBytes(0x0c080400U)));
  }
  NIBBLE_INLINE U8x64 Value(U8x64 raw, int s, const uint8_t* side) { return Key(raw, s, side); }
};

struct Kivi4Codes {
  static constexpr int kPack = 2;
  static constexpr int kMaxCode = 255;
  static constexpr int kLog2Zero = 7;
  static constexpr bool kPerToken = false;
  static constexpr bool kSmallValues = false;
  // (base + zero + step · code) >> 8 of even and odd members apart, in 16 bits that wrap.
  NIBBLE_INLINE U8x64 Levels(U8x64 raw, int s, const uint8_t* side, uint32_t zero) {
    const I32x16 nibble = SplatI(0x000f000f);
    // Shifts of words: shifts of bytes drop what NEON does not carry over.
    const I32x16 words = AsI32(raw);
    const I32x16 even = AndI(s == 0 ? words : ShiftRightI(words, 4), nibble);
    const I32x16 odd = AndI(ShiftRightI(words, s == 0 ? 8 : 12), nibble);
    const auto base = [&](int at) {
      return SplatI(static_cast<int32_t>(static_cast<uint32_t>(WordAt(side + at)) ^ zero));
    };
    const I32x16 low = MulAdd16(even, SplatI(WordAt(side)), base(8));
    const I32x16 high = MulAdd16(odd, SplatI(WordAt(side + 4)), base(12));
    return Or(AsU8(AndI(ShiftRightI(low, 8), SplatI(0x00ff00ff))),
              AsU8(AndI(high, SplatI(static_cast<int32_t>(0xff00ff00U)))));
  }
  NIBBLE_INLINE U8x64 Key(U8x64 raw, int s, const uint8_t* side) {
    return Levels(raw, s, side, 0x80008000U);  // + 128 · 256, modulo 2^16
  }
  NIBBLE_INLINE U8x64 Value(U8x64 raw, int s, const uint8_t* side) {
    return Levels(raw, s, side, 0);
  }
};

constexpr int kKeyVectors = kPageTokens / 16;  // of one quad

template <class Codes>
constexpr size_t CodeBytes(int dim16) {
  return static_cast<size_t>(dim16) * kPageTokens / Codes::kPack;
}

}  // namespace
}  // namespace nibble::NIBBLE_ISA_NS
