#pragma once

#include <cstddef>

#include "format/kv_format.h"

namespace nibble {

// The reference codec of cached keys and values: the scalar truth of what sealing stores and what a
// sealed block means. x: [kPageTokens][head_dim] of one KV head. block: KvBlockBytes, page_float
// where the format has one (else untouched).
//
// Values beyond ±65504 must not occur (open pages are f16). A NaN makes a scale that covers it NaN,
// and so all numbers under that scale: an int8 or int4 key or value poisons its token, any other
// its page.
//
// given_scale: fp8's scale where a checkpoint has one; numbers beyond 448 of it saturate. 0: the
// page's own. Other formats do not look at it.
void EncodeKv(KvFormat format, KvSide side, const float* x, int head_dim, std::byte* block,
              float* page_float, float given_scale = 0);
void DecodeKv(KvFormat format, KvSide side, const std::byte* block, float page_float, int head_dim,
              float* x);

// The integer codes or levels of an integer format, [kPageTokens][head_dim], and what they are
// multiplied by, one factor per token: DecodeKv is their product.
void DecodeKvCodes(KvFormat format, KvSide side, const std::byte* block, float page_float,
                   int head_dim, int* codes, float* factors);

// Bound on |decode(encode(x)) - x| of a number: the scale that covers it covers numbers in
// [low, high] (low <= high), and the largest magnitude in its page is `largest`. Derivation:
// kv_codec.cc.
struct KvSpread {
  double low = 0;
  double high = 0;
  double largest = 0;
};
double KvErrorBound(KvFormat format, KvSpread spread);

}  // namespace nibble
