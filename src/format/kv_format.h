#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/paging.h"

namespace nibble {

// Number formats of cached keys and values. Open pages hold f16 or f32; the others exist only in
// sealed pages (docs/architecture.md §7), each as one block per KV head and side.
enum class KvFormat : uint8_t { kF32, kF16, kFp8, kInt8, kInt4, kKivi4, kKivi2 };
inline constexpr int kKvFormatCount = 7;

enum class KvSide : uint8_t { kKeys, kValues };

// A block is the codes of [kPageTokens][head_dim] numbers, then their side data; a float per page,
// where the format has one, is stored apart (KvLayout), so that blocks stay multiples of 64 bytes
// where head_dim is one of 16.
//
//   f32, f16, fp8   keys [head_dim][32], values [32][head_dim]
//   int8, int4, kivi4, kivi2: b bits, n = 8 / b codes a byte, dim = head_dim rounded up to 16; four
//     steps of the reduction interleaved for byte products, n such vectors in the bits b·0, b·1, …:
//     keys    [dim / 4 / n][32][4]: channel c of token j in byte [c / 4 / n][j][c % 4],
//             bits b · (c / 4 % n)
//     values  [8 / n][dim][4]: byte [j / 4 / n][c][j % 4], bits b · (j / 4 % n)
//   side data
//     int8, int4  f16 scale [32], one per token; the page float (values only) is the largest of
//     them kivi4       per four channels (keys) or per 32 channels and four tokens (values), in the
//                 order even, odd member: uint16 step [2][2], int16 base [2][2], in 1/256 of the
//                 page float; a code's level is (base + step · code) >> 8
//     kivi2       per channel (keys) or per 32 channels and token (values): four int8 levels in
//                 units of the page float, indexed by the code
//     fp8         none; the page float is the scale
// Codes of int8 are two's complement, +128 (keys: an unsigned operand); of int4 +8; levels of keys
// are stored +128.
struct KvFormatTraits {
  KvFormat format;
  std::string_view name;  // as --kv takes it
  int code_bits;
  int unit_pages;      // S: pages that seal together
  bool sealed_only;    // false: open pages hold it too
  bool integer;        // has byte products under act=int8
  bool page_float[2];  // by KvSide
};

const KvFormatTraits& TraitsOf(KvFormat format);
std::span<const KvFormatTraits> AllKvFormats();
std::optional<KvFormat> KvFormatFromName(std::string_view name);

// Bytes of one block, a multiple of 4.
size_t KvBlockBytes(KvFormat format, KvSide side, int head_dim);

}  // namespace nibble
