#pragma once

#include <cstddef>

#include "format/kv_format.h"

namespace nibble {

// One side of one KV head of a full open page, to be put into its sealed form.
struct SealBlock {
  KvFormat open = KvFormat::kF16;  // f16 or f32
  KvFormat format = KvFormat::kF16;
  KvSide side = KvSide::kKeys;
  int head_dim = 0;
  const std::byte* from = nullptr;  // KvBlockBytes(open, …)
  float* scratch = nullptr;         // [kPageTokens · head_dim]
  std::byte* to = nullptr;          // KvBlockBytes(format, …)
  float* page_float = nullptr;      // written where the format has one
  float given_scale = 0;            // fp8: in place of the block's own; 0: none
};

// By the codec of format/kv_codec.h. The kernels of all instruction sets store the same bytes.
void SealScalar(const SealBlock& block);

}  // namespace nibble
