#include "kernels/seal_block.h"

#include <cstring>

#include "base/paging.h"
#include "format/kv_codec.h"

namespace nibble {

void SealScalar(const SealBlock& block) {
  if (block.format == block.open) {  // the other side's format has the two forms
    std::memcpy(block.to, block.from, KvBlockBytes(block.open, block.side, block.head_dim));
    return;
  }
  DecodeKv(block.open, block.side, block.from, 0, block.head_dim, block.scratch);
  EncodeKv(block.format, block.side, block.scratch, block.head_dim, block.to, block.page_float,
           block.given_scale);
}

}  // namespace nibble
