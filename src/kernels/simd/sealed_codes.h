#pragma once

// Codes of sealed blocks (format/kv_format.h) as bytes for integer products, four steps of the
// reduction per lane. `quad`: four channels (keys) or four tokens (values); a raw vector holds
// kPack of them, quad = raw index · kPack + s. Keys decode to code + 2^kLog2Zero, at most kMaxCode,
// or, where kMaxCode is 255 and the dot product wants it (simd/int_dot.h), to the signed code;
// values to signed bytes.
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

NIBBLE_INLINE U8x64 MoveBy128(U8x64 bytes) { return AddBytes(bytes, SplatBytes(0x80808080U)); }

struct Int8Codes {
  static constexpr int kPack = 1;
  static constexpr int kMaxCode = 255;
  static constexpr int kLog2Zero = 7;
  static constexpr bool kPerToken = true;
  static constexpr bool kSmallValues = false;  // within ±8
  template <bool kSigned>
  NIBBLE_INLINE U8x64 Key(U8x64 raw, int, const uint8_t*) {
    return kSigned ? MoveBy128(raw) : raw;
  }
  NIBBLE_INLINE U8x64 Value(U8x64 raw, int, const uint8_t*) { return raw; }
};

struct Int4Codes {
  static constexpr int kPack = 2;
  static constexpr int kMaxCode = 15;
  static constexpr int kLog2Zero = 3;
  static constexpr bool kPerToken = true;
  static constexpr bool kSmallValues = true;
  template <bool kSigned>
  NIBBLE_INLINE U8x64 Key(U8x64 raw, int s, const uint8_t*) {
    return And(s == 0 ? raw : ShiftRight(raw, 4), 15);
  }
  NIBBLE_INLINE U8x64 Value(U8x64 raw, int s, const uint8_t* side) {
    return AddBytes(Key<false>(raw, s, side), SplatBytes(0xf8f8f8f8U));
  }
};

// side: 16 bytes of the quad.
struct Kivi2Codes {
  static constexpr int kPack = 4;
  static constexpr int kMaxCode = 255;
  static constexpr int kLog2Zero = 7;
  static constexpr bool kPerToken = false;
  static constexpr bool kSmallValues = false;
  template <bool kSigned>
  NIBBLE_INLINE U8x64 Key(U8x64 raw, int s, const uint8_t* side) {
    const U8x64 key = Value(raw, s, side);
    return kSigned ? MoveBy128(key) : key;
  }
  NIBBLE_INLINE U8x64 Value(U8x64 raw, int s, const uint8_t* side) {
    const U8x64 code = And(s == 0 ? raw : ShiftRight(raw, 2 * s), 3);
    return Lookup(side, Or(code, SplatBytes(0x0c080400U)));
  }
};

struct Kivi4Codes {
  static constexpr int kPack = 2;
  static constexpr int kMaxCode = 255;
  static constexpr int kLog2Zero = 7;
  static constexpr bool kPerToken = false;
  static constexpr bool kSmallValues = false;
  template <bool kSigned>
  NIBBLE_INLINE U8x64 Key(U8x64 raw, int s, const uint8_t* side) {
    const U8x64 key = Value(raw, s, side);
    return kSigned ? key : MoveBy128(key);
  }
  // (base + step · code) >> 8 of even and odd members apart, in 16 bits that wrap.
  NIBBLE_INLINE U8x64 Value(U8x64 raw, int s, const uint8_t* side) {
    const I32x16 nibble = SplatI(0x000f000f);
    const I32x16 words = AsI32(raw);
    const I32x16 even = AndI(s == 0 ? words : ShiftRight16(words, 4), nibble);
    const I32x16 odd = s == 0 ? AndI(ShiftRight16(words, 8), nibble) : ShiftRight16(words, 12);
    const I32x16 low = MulAdd16(even, SplatI(WordAt(side)), SplatI(WordAt(side + 8)));
    const I32x16 high = MulAdd16(odd, SplatI(WordAt(side + 4)), SplatI(WordAt(side + 12)));
    return Or(AsU8(ShiftRight16(low, 8)),
              AsU8(AndI(high, SplatI(static_cast<int32_t>(0xff00ff00U)))));
  }
};

// Codes that have been unpacked to bytes before.
template <class Codes>
struct Unpacked {
  static constexpr int kPack = 1;
  static constexpr int kMaxCode = Codes::kMaxCode;
  static constexpr int kLog2Zero = Codes::kLog2Zero;
  static constexpr bool kPerToken = Codes::kPerToken;
  static constexpr bool kSmallValues = Codes::kSmallValues;
  template <bool kSigned>
  NIBBLE_INLINE U8x64 Key(U8x64 raw, int, const uint8_t*) {
    return raw;
  }
  NIBBLE_INLINE U8x64 Value(U8x64 raw, int, const uint8_t*) { return raw; }
};

constexpr int kKeyVectors = kPageTokens / 16;  // of one quad

template <class Codes>
constexpr size_t CodeBytes(int dim16) {
  return static_cast<size_t>(dim16) * kPageTokens / Codes::kPack;
}

}  // namespace
}  // namespace nibble::NIBBLE_ISA_NS
