#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/math.h"
#include "base/paging.h"

namespace nibble {

// Number format of cached keys or values. Sealed formats of fewer bits join here; open pages hold
// kF16, or kF32 under --kv f32.
enum class KvFormat : uint8_t { kF32, kF16 };

constexpr size_t KvBytes(KvFormat format) { return format == KvFormat::kF32 ? 4 : 2; }

// Layout of one layer's piece of one page: [kv_head][K | V], K [head_dim][32] (positions are
// lanes), V [32][head_dim]. A piece is a multiple of 64 bytes.
struct KvLayout {
  KvFormat k = KvFormat::kF16;
  KvFormat v = KvFormat::kF16;
  int kv_heads = 0;
  int head_dim = 0;

  constexpr size_t KBytes() const {  // of one head
    return RoundUp<size_t>(KvBytes(k) * kPageTokens * head_dim, 64);
  }
  constexpr size_t VBytes() const {
    return RoundUp<size_t>(KvBytes(v) * kPageTokens * head_dim, 64);
  }
  constexpr size_t PieceBytes() const { return (KBytes() + VBytes()) * kv_heads; }
};

// The pages of one sequence in one KV group: page p of the sequence holds positions [32p, 32p+32)
// at arena + pages[p] * page_bytes. Pages that left a sliding window are kNoPage and never read.
struct KvTable {
  std::byte* arena = nullptr;
  size_t page_bytes = 0;
  std::span<const PageId> pages;
};

// One sequence's cache of one layer.
struct KvView {
  KvTable table;
  size_t layer_offset = 0;  // of this layer's piece in a page
  KvLayout layout;

  std::byte* piece(int page) const {
    return table.arena + table.page_bytes * static_cast<size_t>(table.pages[page].value()) +
           layer_offset;
  }
};

}  // namespace nibble
